//! `distlock serve`: locks over HTTP, until a signal says stop.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use distlock::Locks;
use distlock_server::{Config, Error, Server, Tokens};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

use crate::args::Store;
use crate::exit::{self, Failure};
use crate::{out, signals, span};

/// What `serve` takes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,

    /// Where to listen. Anything but loopback needs a token file
    #[arg(short, long, value_name = "ADDRESS", env = "DISTLOCK_LISTEN")]
    #[arg(default_value = "127.0.0.1:3009")]
    listen: SocketAddr,

    /// A file with one token a line, each followed by its scopes: read, lock:<prefix>, admin
    #[arg(long, value_name = "FILE", env = "DISTLOCK_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// A name that clients call this service by, beside localhost; may be given several times
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Clients come through a proxy: a connection that is reset says nothing about them, and their
    /// address is the last in X-Forwarded-For
    #[arg(long)]
    behind_proxy: bool,

    /// Where Terraform states are kept: a SQLite file [default: terraform.sqlite in this user's
    /// folder for state]
    #[arg(long, value_name = "FILE")]
    terraform_state: Option<PathBuf>,

    /// A lock store that clients of Dapr name; may be given several times
    #[arg(long = "dapr-store", value_name = "NAME", default_value = "lockstore")]
    dapr_stores: Vec<String>,

    /// How many requests of one token may wait at once
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    waiters_max: usize,

    /// How long a request may wait at most: shorter than the patience of what stands before it
    #[arg(long, value_name = "DUR", value_parser = span::parse, default_value = "55s")]
    wait_max: Duration,

    /// How many leases one token may have
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    leases_max: usize,

    /// Say more; twice, everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Serves until TERM or INT.
pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    log(args.verbose);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::INTERNAL, format!("could not start: {error}")))?;
    let served = runtime.block_on(serve(args));
    // A call that hangs must not keep the process.
    runtime.shutdown_background();
    served.map(|()| 0)
}

async fn serve(args: Args) -> Result<(), Failure> {
    let backend = &args.store.backend;
    let locks = Locks::connect(backend)?;
    let mut config = Config::new(args.listen);
    if let Some(file) = &args.token_file {
        config.tokens = Tokens::read(file).map_err(refuse)?;
    }
    config.hosts = args.hosts;
    config.behind_proxy = args.behind_proxy;
    config.terraform_state = args.terraform_state.or_else(terraform_state);
    config.dapr_stores = args.dapr_stores;
    config.waiters_max = args.waiters_max;
    config.wait_max = args.wait_max;
    config.leases_max = args.leases_max;
    // Whoever says something about the journal has decided.
    if backend.contains("journal=") {
        config.journal = None;
    }
    config.quorum = backend.starts_with("quorum:");
    // A service that cannot reach its store says so at once, and goes on: stores come back.
    if let Err(error) = locks.probe().await {
        out::say(format_args!("WARNING: {}", Failure::from(error).message().unwrap_or_default()));
    }
    let (mut term, mut int) = (signals::stream(Signal::TERM)?, signals::stream(Signal::INT)?);
    let server = Server::bind(config, locks).await.map_err(refuse)?;
    out::say(format_args!("listening on http://{}", server.address()));
    let stop = CancellationToken::new();
    let running = server.run(stop.clone());
    tokio::pin!(running);
    tokio::select! {
        ended = running.as_mut() => return ended.map_err(refuse),
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    out::say("stopping");
    stop.cancel();
    tokio::select! {
        ended = running => ended.map_err(refuse),
        // A second signal is meant.
        _ = term.recv() => Err(Failure::silent(exit::of_signal(Signal::TERM.as_raw()))),
        _ = int.recv() => Err(Failure::silent(exit::of_signal(Signal::INT.as_raw()))),
    }
}

/// Where states are kept if nobody says; none for a user without a home.
fn terraform_state() -> Option<PathBuf> {
    let folder = |name, below: &str| Some(PathBuf::from(std::env::var_os(name)?).join(below));
    let state = folder("XDG_STATE_HOME", "").or_else(|| folder("HOME", ".local/state"))?;
    Some(state.join("distlock/terraform.sqlite"))
}

fn refuse(error: Error) -> Failure {
    match error {
        Error::Locks(error) => error.into(),
        error => Failure::new(exit::CONFIGURATION, format!("could not {error}")),
    }
}

fn log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let to_stderr = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level);
    // Somebody else has set up a log: then that is where it goes. A reader of stderr that has gone
    // is no reason to fail, so nothing is said about it there.
    let _ = to_stderr.with_ansi(false).log_internal_errors(false).try_init();
}
