//! A small language for tests: `on(&store).run("run -n k -- true").code(75).says("held")`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use distlock_testkit::servers::RedisServer;
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// A folder of a test's own. It goes with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("distlock-cli-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What is in a file; nothing if it is not there.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A store that commands can share.
pub(crate) enum Store {
    Redis(RedisServer),
    Sqlite(Folder),
}

impl Store {
    pub(crate) fn redis() -> Self {
        Self::Redis(RedisServer::start())
    }

    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(Folder::new())
    }

    /// One of each, for promises that hold wherever the locks are.
    pub(crate) fn each() -> [Self; 2] {
        [Self::sqlite(), Self::redis()]
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Sqlite(folder) => format!("sqlite:{}", folder.path("locks.db").display()),
        }
    }
}

/// A command line that is being written, with a folder to run in.
pub(crate) struct Distlock {
    url: String,
    folder: Option<PathBuf>,
    environment: Vec<(String, String)>,
    stdin: Option<String>,
}

/// Commands on a store.
pub(crate) fn on(store: &Store) -> Distlock {
    at(&store.url())
}

/// Commands on a URL.
pub(crate) fn at(url: &str) -> Distlock {
    Distlock { url: url.into(), folder: None, environment: Vec::new(), stdin: None }
}

/// Splits a line into words as a shell does, without a shell: single quotes keep words together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '\'' => (quoted, begun) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

impl Distlock {
    /// Runs in this folder.
    pub(crate) fn inside(mut self, folder: &Folder) -> Self {
        self.folder = Some(folder.0.clone());
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    pub(crate) fn stdin(mut self, text: &str) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// The command, ready to be started.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
        command.args(words(line)).env("DISTLOCK_URL", &self.url).env("USER", "tester");
        for name in ["DISTLOCK_HELD", "DISTLOCK_REENTRY", "DISTLOCK_LEASE", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().cloned());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a line to its end.
    pub(crate) fn run(&self, line: &str) -> Done {
        let mut command = self.command(line);
        if self.stdin.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let Some(text) = &self.stdin {
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        }
        Done::new(line, child.wait_with_output().unwrap())
    }

    /// Starts a line and goes on.
    pub(crate) fn start(&self, line: &str) -> Running {
        let child = self.command(line).spawn().unwrap();
        Running { line: line.into(), child: Some(child) }
    }
}

/// A command that runs. It is killed with this value.
pub(crate) struct Running {
    line: String,
    child: Option<Child>,
}

impl Running {
    /// A process that a test has started by itself.
    pub(crate) fn of(line: &str, child: Child) -> Self {
        Self { line: line.into(), child: Some(child) }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Asks it to end, and waits until it has released what it held.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        self.end();
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Done {
        let line = self.line.clone();
        let child = self.child.take().unwrap();
        Done::new(&line, child.wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How a command ended, to be asserted upon.
pub(crate) struct Done {
    line: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    fn new(line: &str, output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Self { line: line.into(), status: output.status, stdout, stderr }
    }

    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        let (line, errors) = (&self.line, &self.stderr);
        assert_eq!(self.status.code(), Some(code), "distlock {line}: {errors}");
        self
    }

    /// Something stands on stderr.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(self.stderr.contains(words), "distlock {}: {}", self.line, self.stderr);
        self
    }

    /// All of stdout, but for the last end of line.
    #[track_caller]
    pub(crate) fn prints(self, text: &str) -> Self {
        let printed = self.stdout.strip_suffix('\n').unwrap_or(&self.stdout);
        assert_eq!(printed, text, "distlock {}", self.line);
        self
    }

    /// Something stands on stdout.
    #[track_caller]
    pub(crate) fn shows(self, words: &str) -> Self {
        let (line, shown) = (&self.line, &self.stdout);
        assert!(shown.contains(words), "distlock {line}: no {words:?} in {shown}");
        self
    }

    /// Nothing stands on stderr.
    #[track_caller]
    pub(crate) fn quietly(self) -> Self {
        assert_eq!(self.stderr, "", "distlock {}", self.line);
        self
    }

    /// Stdout as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("no JSON: {}", self.stdout))
    }
}

/// Runs curl, which says nothing but the answer.
pub(crate) fn curl(arguments: &[&str]) -> Done {
    let mut command = Command::new("curl");
    command.args(["-sS", "--noproxy", "*", "--max-time", "30"]).args(arguments);
    let output = command.output().expect("curl is installed");
    Done::new(&format!("(curl {})", arguments.join(" ")), output)
}

/// Says that a promise was not put to the test here. The harness hides what tests print as long as
/// they pass, so this goes past it.
pub(crate) fn skipped(what: &str, why: &str) {
    let line = format!("SKIPPED: {what} is not shown: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "still not so: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// True if a process exists and is no zombie.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, after)| !after.trim_start().starts_with(['Z', 'X']))
}

/// A command that holds a key until it is ended, and says where when it does.
pub(crate) fn hold(distlock: &Distlock, folder: &Folder, flags: &str, key: &str) -> Running {
    let mark = folder.path("held");
    let _ = fs::remove_file(&mark);
    let line = format!("run {flags} {key} -- sh -c 'echo $$ > {}; exec sleep 100'", mark.display());
    let running = distlock.start(&line);
    until("the key is held", || fs::read_to_string(&mark).is_ok_and(|pid| pid.ends_with('\n')));
    running
}

/// How many rounds a test of chance plays: a few, or many under DISTLOCK_SOAK.
pub(crate) fn rounds(few: usize, many: usize) -> usize {
    if std::env::var_os("DISTLOCK_SOAK").is_some() { many } else { few }
}

/// The same store all through a test that only needs some store. It goes with the test's thread.
pub(crate) fn some() -> Rc<Store> {
    thread_local! {
        static STORE: Rc<Store> = Rc::new(Store::sqlite());
    }
    STORE.with(Rc::clone)
}
