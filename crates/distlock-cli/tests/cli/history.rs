//! Looking back: who held a key, how it ended, and events as they happen.

use crate::support::*;

#[test]
fn history_tells_who_held_and_how_it_ended() {
    for store in Store::each() {
        let (locker, folder) = (on(&store), Folder::new());
        locker.run("run -q --owner ann --reason first past -- true").code(0);
        let holder = hold(&on(&store).inside(&folder), &folder, "-q --owner bob", "past");
        locker.run("run -q -w 100ms --owner eve past -- true").code(75);
        let status = locker.run("status --json past").json();
        let fence = &status["holders"][0]["fence"];
        locker.run(&format!("break --fence {fence} --reason stuck past")).code(0);
        holder.end().code(79);
        let done = locker.run("history past").code(0);
        let lines: Vec<_> = done.stdout.lines().collect();
        assert_eq!(lines.len(), 4, "{}", done.stdout);
        assert!(lines[0].starts_with("AGO") && lines[0].ends_with("HOW IT ENDED"));
        assert!(lines[1].contains("eve") && lines[1].ends_with("gave up: timeout"));
        assert!(lines[2].contains("bob") && lines[2].contains("BROKEN by "), "{}", lines[2]);
        assert!(lines[2].ends_with(": stuck"), "{}", lines[2]);
        assert!(lines[3].contains("ann (first)") && lines[3].ends_with("released"));
        let last = locker.run("history --json -n 1 past").json();
        assert_eq!((&last["owner"], &last["state"]), (&"eve".into(), &"gave-up".into()));
        locker.run("history unused").code(0).says("nothing is known");
    }
}

#[test]
fn a_url_can_switch_the_journal_off() {
    let store = Store::sqlite();
    at(&format!("{}?journal=off", store.url())).run("run -q quiet -- true").code(0);
    on(&store).run("history quiet").code(0).says("nothing is known");
}
