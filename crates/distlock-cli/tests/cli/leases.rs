//! Leases for scripts: acquired, renewed and released by separate commands.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::*;

#[test]
fn a_script_holds_a_lease_over_several_commands() {
    for store in Store::each() {
        let locker = on(&store);
        let lease = locker.run("acquire script").code(0).stdout.trim().to_owned();
        assert_eq!(lease.len(), 32, "a lease id: {lease:?}");
        locker.run("acquire -n script").code(75);
        let owner = on(&store).env("DISTLOCK_LEASE", &lease);
        let renewed = owner.run("renew --ttl 100s --json script").code(0).json();
        assert!(renewed["remainingMs"].as_u64() > Some(90_000), "{renewed}");
        owner.run("release script").code(0).quietly();
        owner.run("release script").code(79).says("lost");
        owner.run("renew script").code(79);
        locker.run("acquire -n script").code(0);
    }
}

#[test]
fn a_renewal_keeps_the_ttl_of_its_lease() {
    for store in Store::each() {
        let folder = Folder::new();
        let locker = on(&store).inside(&folder);
        locker.run("acquire -t 120s --token-file token long").code(0);
        let renewed = locker.run("renew --json --token-file token").code(0).json();
        assert_eq!(
            (&renewed["ttlMs"], &renewed["renewAfterMs"]),
            (&120_000.into(), &40_000.into())
        );
        assert!(renewed["remainingMs"].as_u64() > Some(110_000), "{renewed}");

        // Of a lease id alone the store shows what is left.
        let lease = locker.run("acquire -t 90s by-id").code(0).stdout.trim().to_owned();
        let owner = on(&store).env("DISTLOCK_LEASE", &lease);
        let renewed = owner.run("renew --json by-id").code(0).json();
        assert!(renewed["ttlMs"].as_u64().is_some_and(|ms| (85_000..=91_000).contains(&ms)));
        assert!(renewed["remainingMs"].as_u64() > Some(80_000), "{renewed}");
        owner.run("release by-id").code(0);
        owner.run("renew by-id").code(79);
    }
}

#[test]
fn a_release_by_the_lease_id_is_recorded_as_a_release() {
    for store in [Store::redis(), Store::sqlite()] {
        let lease = on(&store).run("acquire --owner me by-id").code(0).stdout.trim().to_owned();
        on(&store).env("DISTLOCK_LEASE", &lease).run("release by-id").code(0);
        let past = on(&store).run("history --json by-id").code(0).stdout;
        assert!(past.contains("released") && past.contains("\"me\""), "{past}");
        assert!(!past.contains("vanished"), "{past}");
    }
}

#[test]
fn a_lease_tells_machines_what_they_need() {
    let lease = on(&some()).run("acquire --json --owner me -t 9s told").code(0).json();
    for (member, value) in [("key", "told"), ("owner", "me"), ("mode", "exclusive")] {
        assert_eq!(lease[member], value);
    }
    assert_eq!((&lease["ttlMs"], &lease["renewAfterMs"]), (&9_000.into(), &3_000.into()));
    assert!(lease["fence"].as_u64() > Some(0) && lease["leaseId"].is_string(), "{lease}");
    let shared = on(&some()).run("acquire --json -s shared-lease").code(0).json();
    assert_eq!(shared["mode"], "shared");
    let permits = on(&some()).run("acquire --json --permits 3 permits").code(0).json();
    let seen = on(&some()).run("status --json permits").code(0).json();
    for lease in [&permits, &seen["holders"][0]] {
        assert_eq!((&lease["mode"], &lease["limit"]), (&"permits".into(), &3.into()), "{lease}");
    }
    on(&some()).run("acquire -n -s shared-lease").code(0);
    on(&some()).run("acquire -n shared-lease").code(75);
}

#[test]
fn a_shell_can_evaluate_a_lease_whatever_the_key() {
    let script = "eval \"$(\"$0\" acquire --shell \"$KEY\")\" && \
        test \"$DISTLOCK_KEY\" = \"$KEY\" && test -n \"$DISTLOCK_FENCE\" && \
        \"$0\" release \"$DISTLOCK_KEY\" && echo fine";
    for key in ["plain", "it's; $(touch /nope) `x` \"q\"", "line\nbreak"] {
        let output = Command::new("sh")
            .args(["-c", script, env!("CARGO_BIN_EXE_distlock")])
            .env("KEY", key)
            .env("DISTLOCK_URL", some().url())
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "fine", "{key:?}: {output:?}");
    }
}

#[test]
fn a_token_file_is_for_its_owner_alone() {
    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let done = locker.run("acquire --token-file token in-file").code(0);
    assert!(done.stdout.trim().parse::<u64>().is_ok(), "only the fence: {}", done.stdout);
    let mode = std::fs::metadata(folder.path("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    locker.run("renew --token-file token").code(0).quietly();
    locker.run("renew other --token-file token").code(64).says("in-file");

    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(folder.path("token"), open.clone()).unwrap();
    locker.run("release --token-file token").code(77).says("chmod 600");
    locker.run("acquire -n --token-file token another").code(77).says("chmod 600");
    locker.run("status --exit-code another").code(0);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(folder.path("token"), private).unwrap();
    locker.run("release --token-file token").code(0);

    locker.run("release --token-file nowhere").code(78).says("nowhere");
    locker.run("acquire --token-file no/such/folder unheld").code(78);
    locker.run("status --exit-code unheld").code(0);
    std::fs::write(folder.path("token"), "nonsense").unwrap();
    locker.run("release --token-file token").code(78).says("not a token file");
}

#[test]
fn a_token_file_of_another_user_or_behind_a_link_is_refused() {
    use std::os::unix::fs::{chown, symlink};

    let folder = Folder::new();
    let locker = on(&some()).inside(&folder);
    let refused = |file: &str, words: &str| {
        locker.run(&format!("acquire -n --token-file {file} guarded")).code(77).says(words);
        locker.run(&format!("release --token-file {file}")).code(77).says(words);
        locker.run("status --exit-code guarded").code(0);
    };
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::write(folder.path("precious"), "precious").unwrap();
    std::fs::set_permissions(folder.path("precious"), private.clone()).unwrap();
    symlink(folder.path("precious"), folder.path("link")).unwrap();
    refused("link", "symbolic link");
    assert_eq!(folder.read("precious"), "precious");

    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(folder.path("pipe")).status().is_ok());
    let _reader = std::fs::OpenOptions::new().read(true).write(true).open(folder.path("pipe"));
    refused("pipe", "not a plain file");

    std::fs::write(folder.path("theirs"), "").unwrap();
    std::fs::set_permissions(folder.path("theirs"), private).unwrap();
    if chown(folder.path("theirs"), Some(65_534), Some(65_534)).is_err() {
        return skipped("a token file of another user", "only root can make one");
    }
    refused("theirs", "belongs to another user");
}

#[test]
fn lease_ids_stand_nowhere_but_with_their_owner() {
    let store = Store::redis();
    let lease = on(&store).run("acquire secret").stdout.trim().to_owned();
    for line in ["status secret", "status --json secret", "ls", "ls --json", "doctor"] {
        let done = on(&store).run(line).code(0);
        assert!(!format!("{}{}", done.stdout, done.stderr).contains(&lease), "{line}");
    }
    on(&store).run("release --lease x secret").code(64);
    on(&store).env("DISTLOCK_LEASE", "nonsense").run("release secret").code(64);
}
