//! What every help text and manual page shows below its flags: examples, environment, exit codes.

/// The three parts, in the same sequence everywhere.
macro_rules! help {
    ($examples:literal, $environment:ident, $exits:ident $(,)?) => {
        concat!(
            "Examples:\n",
            $examples,
            "\n\nEnvironment:\n",
            $environment!(),
            "\n\nExit codes:\n",
            $exits!()
        )
    };
}

macro_rules! no_variables {
    () => {
        "  none"
    };
}

macro_rules! store {
    () => {
        "  DISTLOCK_URL       the store, unless --backend is given [default: sqlite:]"
    };
}

macro_rules! lease {
    () => {
        concat!(store!(), "\n  DISTLOCK_LEASE     the lease id, unless --token-file is given")
    };
}

macro_rules! command {
    () => {
        concat!(
            store!(),
            "\n  DISTLOCK_KEY, DISTLOCK_FENCE, DISTLOCK_OWNER, DISTLOCK_HELD",
            "\n                     set for CMD: key, fencing token, owner, all held keys"
        )
    };
}

macro_rules! service {
    () => {
        concat!(
            store!(),
            "\n  DISTLOCK_LISTEN, DISTLOCK_TOKEN_FILE, DISTLOCK_REDLOCK",
            "\n                     the flags --listen, --token-file, --redlock"
        )
    };
}

macro_rules! local_exits {
    () => {
        "  0 success; 64 usage; 78 configuration; 125 internal failure"
    };
}

macro_rules! store_exits {
    () => {
        concat!(
            "  0 success; 64 usage; 69 store unreachable; 77 access denied; 78 configuration;\n",
            "  125 internal failure"
        )
    };
}

macro_rules! lease_exits {
    () => {
        concat!(store_exits!(), "; 75 not acquired; 79 lease lost")
    };
}

macro_rules! command_exits {
    () => {
        concat!(
            "  the code of CMD, or 128 + N after signal N; 64 usage; 69 store unreachable;\n",
            "  75 not acquired; 77 access denied; 78 configuration; 79 lease lost;\n",
            "  124 --max-hold reached; 125 internal failure; 126 CMD cannot be executed;\n",
            "  127 CMD not found; 130, 143 interrupted while waiting"
        )
    };
}

pub(crate) const DISTLOCK: &str = help!(
    "  distlock run demo -- sleep 20          in two shells: the second waits for the first
  distlock run -w 5m deploy/prod -- ./deploy.sh
  distlock run --preset cron nightly -- ./report.sh
  DISTLOCK_URL=redis://lock.example distlock ls",
    store,
    command_exits,
);

pub(crate) const RUN_USAGE: &str = "distlock run [OPTIONS] <KEY> -- <CMD>...";

pub(crate) const RUN: &str = help!(
    "  distlock run -w 5m deploy/prod -- ./deploy.sh --env prod
  distlock run --shared dataset -- ./read.sh
  distlock run --permits 3 uploads -- ./upload.sh
  distlock run -k account/3 -k account/7 -- ./transfer.sh
  distlock run --preset cron nightly -- ./report.sh",
    command,
    command_exits,
);

pub(crate) const ELECT_USAGE: &str = "distlock elect [OPTIONS] <KEY> -- <CMD>...";

pub(crate) const ELECT: &str =
    help!("  distlock elect --ttl 5s scheduler -- ./scheduler", command, command_exits,);

pub(crate) const ACQUIRE: &str = help!(
    "  L=$(distlock acquire --shell --ttl 10m migration) || exit; eval \"$L\"
  distlock acquire --token-file /run/user/1000/lease migration",
    store,
    lease_exits,
);

pub(crate) const RENEW: &str = help!(
    "  distlock renew --ttl 10m migration
  distlock renew --token-file /run/user/1000/lease migration",
    lease,
    lease_exits,
);

pub(crate) const RELEASE: &str = help!(
    "  distlock release migration
  distlock release --token-file /run/user/1000/lease migration",
    lease,
    lease_exits,
);

pub(crate) const STATUS: &str = help!(
    "  distlock status deploy/prod
  distlock status --exit-code deploy/prod || echo held",
    store,
    lease_exits,
);

pub(crate) const LS: &str =
    help!("  distlock ls deploy/\n  distlock ls --json", store, store_exits);

pub(crate) const WATCH: &str =
    help!("  distlock watch deploy/\n  distlock watch --events --json", store, store_exits,);

pub(crate) const HISTORY: &str = help!(
    "  distlock history -n 50 deploy/prod\n  distlock history --json deploy/prod",
    store,
    store_exits,
);

pub(crate) const BREAK: &str = help!(
    "  distlock status deploy/prod          shows the holder and its fence
  distlock break --fence 42 --reason 'host is gone' deploy/prod",
    store,
    lease_exits,
);

pub(crate) const DOCTOR: &str =
    help!("  distlock doctor\n  distlock doctor redis://lock.example", store, store_exits,);

pub(crate) const SERVE: &str = help!(
    "  distlock serve --listen 127.0.0.1:3009
  distlock serve --listen 0.0.0.0:3009 --token-file tokens --tls-cert cert.pem --tls-key key.pem",
    service,
    store_exits,
);

pub(crate) const COMPLETIONS: &str = help!(
    "  distlock completions bash > /etc/bash_completion.d/distlock",
    no_variables,
    local_exits,
);

pub(crate) const MAN: &str =
    help!("  distlock man --out /usr/local/share/man/man1", no_variables, local_exits,);

#[cfg(feature = "postgres")]
pub(crate) const SCHEMA_HELP: &str = help!(
    "  distlock schema postgres | psql postgres://admin@db.example/locks
  distlock schema postgres --schema billing_locks > tables.sql",
    no_variables,
    local_exits,
);

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::args::Cli;

    /// Every command with the summary of the list of commands.
    fn commands() -> Vec<(String, clap::Command)> {
        let summary = |command: &clap::Command| command.get_about().unwrap().to_string();
        let listed: Vec<_> = Cli::command().get_subcommands().map(summary).collect();
        let mut whole = Cli::command();
        whole.build();
        let own = whole.get_subcommands().filter(|command| command.get_name() != "help");
        listed.into_iter().zip(own.cloned()).collect()
    }

    #[test]
    fn every_help_text_opens_with_its_summary_and_shows_examples_environment_and_exit_codes() {
        let commands = commands();
        assert_eq!(commands.len(), 14 + usize::from(cfg!(feature = "postgres")));
        for (summary, mut command) in commands {
            let name = command.get_name().to_owned();
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                assert!(help.starts_with(&summary), "{name}: {help}");
                for part in ["Usage: ", "Examples:\n", "Environment:\n", "Exit codes:\n"] {
                    assert!(help.contains(part), "{name} lacks {part:?}:\n{help}");
                }
                let example = format!("distlock {name}");
                assert!(help.contains(&example), "{name} has no example:\n{help}");
                let dashes = !["run", "elect"].contains(&&*name) || help.contains("<KEY> -- <CMD>");
                assert!(dashes, "{name} does not show the two dashes:\n{help}");
            }
        }
    }

    #[test]
    fn every_manual_page_opens_with_its_summary_and_shows_examples_and_exit_codes() {
        for (summary, command) in commands() {
            let name = command.get_name().to_owned();
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).unwrap();
            let page = String::from_utf8(page).unwrap();
            let description = page.split(".SH DESCRIPTION").nth(1).unwrap();
            assert!(description.trim_start().starts_with(&summary), "{name}:\n{page}");
            for part in ["Examples:", "Environment:", "Exit codes:"] {
                assert!(page.contains(part), "{name} lacks {part:?}:\n{page}");
            }
        }
    }
}
