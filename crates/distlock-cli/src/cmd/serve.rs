//! `distlock serve`: locks over HTTP, until a signal says stop.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use distlock::{Locks, Printable};
use distlock_server::{Listen, Reloader, Server, ServerConfig, ServerError, ServerTls, Tokens};
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use crate::args::StoreArgs;
use crate::exit::{self, Failure};
use crate::help;
use crate::{log, open_files, out, signals, span};

/// How long reading the files again may take.
const RELOAD_MAX: Duration = Duration::from_secs(10);

/// Serve locks over HTTP
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::SERVE)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Where to listen: an address, or unix:PATH for a socket of this user's. Any address but
    /// loopback needs a token file
    #[arg(short, long, value_name = "ADDRESS", env = "DISTLOCK_LISTEN")]
    #[arg(default_value = "127.0.0.1:3009")]
    listen: Listen,

    #[command(flatten)]
    files: Files,

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

    /// A quorum for the pattern redlock, beside any backend: quorum:?node=URL&node=URL&node=URL
    #[arg(long, value_name = "URL", env = "DISTLOCK_REDLOCK")]
    redlock: Option<String>,

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

    /// How many connections are served at once; a quarter is kept for clients that have shown a
    /// token
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections_max: usize,

    /// Say more; twice, everything
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

/// Files that are read at the start, and again on HUP.
#[derive(Clone, Debug, clap::Args)]
struct Files {
    /// A file with one token a line, each followed by its scopes (read, metrics, lock:<prefix>,
    /// state:<prefix>, admin) and name=, expires=, ttl-max=. Mode 0600. Read again on HUP
    #[arg(long, value_name = "FILE", env = "DISTLOCK_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// Encrypt connections with this certificate and its chain (PEM). Read again on HUP
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The private key of the certificate (PEM). Mode 0600
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate that this authority has signed (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
}

impl Files {
    fn tokens(&self) -> Result<Option<Tokens>, ServerError> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let tokens = Tokens::read(file)?;
        for name in tokens.expired(SystemTime::now()) {
            out::say(format_args!("WARNING: the token {name} has expired"));
        }
        Ok(Some(tokens))
    }

    fn tls(&self) -> Result<Option<ServerTls>, ServerError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        ServerTls::read(cert, key, self.client_ca.as_deref()).map(Some)
    }
}

/// Serves until TERM or INT.
pub(crate) fn run(args: ServeArgs) -> Result<u8, Failure> {
    log::to_stderr(args.verbose);
    open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit::INTERNAL, format!("could not start: {error}")))?;
    let served = runtime.block_on(serve(args));
    // A call that hangs must not keep the process.
    runtime.shutdown_background();
    served.map(|()| 0)
}

async fn serve(args: ServeArgs) -> Result<(), Failure> {
    let backend = &args.store.backend;
    let locks = Locks::connect(backend)?;
    let mut config = ServerConfig::new(args.listen);
    config.tokens = args.files.tokens().map_err(refuse)?.unwrap_or_default();
    config.tls = args.files.tls().map_err(refuse)?;
    warn_of_plain_text(&config);
    config.connections_max = args.connections_max;
    config.hosts = args.hosts;
    config.behind_proxy = args.behind_proxy;
    config.terraform_state = args.terraform_state.or_else(terraform_state);
    config.dapr_stores = args.dapr_stores;
    config.waiters_max = args.waiters_max;
    config.wait_max = args.wait_max;
    config.leases_max = args.leases_max;
    // What the URL says about the journal counts.
    if backend.contains("journal=") {
        config.journal = None;
    }
    config.quorum = backend.starts_with("quorum:");
    config.redlock = args.redlock.as_deref().map(redlock).transpose()?;
    // A service that cannot reach its store says so at once, and goes on: stores come back.
    for store in [Some(&locks), config.redlock.as_ref()].into_iter().flatten() {
        if let Err(error) = store.probe().await {
            let failure = Failure::from(error);
            let why = Printable(failure.message().unwrap_or_default());
            out::say(format_args!("WARNING: {why}"));
        }
    }
    let (mut term, mut int) = (signals::stream(Signal::TERM)?, signals::stream(Signal::INT)?);
    let mut hup = signals::stream(Signal::HUP)?;
    let server = Server::bind(config, locks).await.map_err(refuse)?;
    out::say(format_args!("listening on {}", Printable(&server.url())));
    let (stop, reloader) = (CancellationToken::new(), server.reloader());
    let running = server.run(stop.clone());
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = running.as_mut() => return stopped(ended),
            _ = term.recv() => break,
            _ = int.recv() => break,
            _ = hup.recv() => reload(&args.files, &reloader).await,
        }
    }
    out::say("stopping");
    stop.cancel();
    tokio::select! {
        ended = running => stopped(ended),
        // A second signal is meant.
        _ = term.recv() => Err(Failure::silent(exit::of_signal(Signal::TERM.as_raw()))),
        _ = int.recv() => Err(Failure::silent(exit::of_signal(Signal::INT.as_raw()))),
    }
}

/// The service has ended as it should, even if the store did not take back every lock: there is
/// nothing left that this process could do, and the locks end with their leases.
fn stopped(ended: Result<(), ServerError>) -> Result<(), Failure> {
    match ended {
        Err(ServerError::Locks(error)) => {
            let error = error.to_string();
            out::say(format_args!("WARNING: {}; locks end with their leases", Printable(&error)));
            Ok(())
        }
        ended => ended.map_err(refuse),
    }
}

/// Reads tokens and certificates again. What cannot be used changes nothing.
async fn reload(files: &Files, reloader: &Reloader) {
    let files = files.clone();
    let reading = tokio::task::spawn_blocking(move || Ok((files.tokens()?, files.tls()?)));
    let read = match tokio::time::timeout(RELOAD_MAX, reading).await {
        Ok(Ok(read)) => read,
        Ok(Err(_)) | Err(_) => {
            return out::say("WARNING: tokens and certificates could not be read in time");
        }
    };
    match read {
        Ok((None, None)) => out::say("HUP: there is no token file and no certificate to read"),
        Ok((tokens, tls)) => {
            if let Some(tokens) = tokens {
                out::say(format_args!("read {} tokens again", tokens.len()));
                reloader.replace_tokens(tokens);
            }
            if let Some(tls) = tls {
                out::say("read the certificate again");
                reloader.replace_tls(tls);
            }
        }
        Err(error) => {
            let error: ServerError = error;
            let error = error.to_string();
            out::say(format_args!("WARNING: unchanged: could not {}", Printable(&error)));
        }
    }
}

/// Tokens that cross a network without TLS can be read on the way.
fn warn_of_plain_text(config: &ServerConfig) {
    let Listen::Tcp(address) = &config.listen else { return };
    if config.tls.is_none() && !config.behind_proxy && !address.ip().is_loopback() {
        out::say("WARNING: tokens travel unencrypted: use --tls-cert, or a proxy (--behind-proxy)");
    }
}

/// The quorum of the pattern redlock.
fn redlock(url: &str) -> Result<Locks, Failure> {
    if !url.starts_with("quorum:") {
        let message = "--redlock needs a quorum of independent servers: \
                       quorum:?node=URL&node=URL&node=URL";
        return Err(Failure::usage(message));
    }
    Ok(Locks::connect(url)?)
}

/// Where states are kept if no file is named; none for a user without a home.
fn terraform_state() -> Option<PathBuf> {
    let folder = |name, below: &str| Some(PathBuf::from(std::env::var_os(name)?).join(below));
    let state = folder("XDG_STATE_HOME", "").or_else(|| folder("HOME", ".local/state"))?;
    Some(state.join("distlock/terraform.sqlite"))
}

fn refuse(error: ServerError) -> Failure {
    match error {
        ServerError::Locks(error) => error.into(),
        error => Failure::new(code_of(&error), format!("could not {error}")),
    }
}

fn code_of(error: &ServerError) -> u8 {
    match error {
        ServerError::TokenFile { source, .. } | ServerError::Tls { source, .. }
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            exit::NOT_AUTHORISED
        }
        _ => exit::CONFIGURATION,
    }
}
