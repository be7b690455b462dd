//! Another process: this test program once more, as a client of the same file.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::backends::Sqlite;
use distlock_core::{
    Answer, Ask, Backend, Capabilities, Clock, Cursor, Extensions, Fault, Health, Key, Moment,
    Page, Pending, Push, ReleaseOptions, ReleaseOutcome, Renewal, Snapshot, Standing, Streaming,
    Target,
};
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::{broadcast, oneshot};

use crate::wire;

/// Where a peer finds its clock, if it is not the machine's, and its locks.
const CLOCK: &str = "DISTLOCK_PEER_CLOCK";
const FILE: &str = "DISTLOCK_PEER_FILE";

/// A clock that all processes read from one file.
#[derive(Clone, Debug)]
pub(crate) struct FileClock(pub(crate) PathBuf);

impl FileClock {
    pub(crate) fn new(file: PathBuf) -> Self {
        let clock = Self(file);
        clock.set(1_000_000_000);
        clock
    }

    pub(crate) fn advance(&self, while_: Duration) {
        self.set(self.now().after(while_).as_micros());
    }

    fn set(&self, micros: u64) {
        // Renamed into place: no reader may see half of it.
        let draft = self.0.with_extension("draft");
        std::fs::write(&draft, micros.to_string()).unwrap();
        std::fs::rename(&draft, &self.0).unwrap();
    }
}

impl Clock for FileClock {
    fn now(&self) -> Moment {
        Moment::from_micros(std::fs::read_to_string(&self.0).unwrap().parse().unwrap())
    }

    fn nap(&self) -> Duration {
        Duration::from_millis(1)
    }
}

/// A process that has clients of a file. It dies with this value.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    asked: AtomicU64,
    heard: Arc<Heard>,
}

/// What a peer has said and is to be passed on.
#[derive(Debug, Default)]
struct Heard {
    answers: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    pushes: Mutex<HashMap<u64, broadcast::Sender<Push>>>,
}

impl Peer {
    /// A process on the machine's clock, or on one that is in a file.
    pub(crate) fn start(file: &Path, clock: Option<&FileClock>) -> Arc<Self> {
        let program = Command::new(std::env::current_exe().unwrap());
        Self::start_as(program, file, clock)
    }

    /// The same, begun by a command that runs another one.
    pub(crate) fn start_as(
        mut command: Command,
        file: &Path,
        clock: Option<&FileClock>,
    ) -> Arc<Self> {
        command.args([
            "--exact",
            "other_process::speaks_for_another_process",
            "--ignored",
            "--nocapture",
        ]);
        command.env(FILE, file).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(clock) = clock {
            command.env(CLOCK, &clock.0);
        }
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let heard = Arc::new(Heard::default());
        let hears = Arc::clone(&heard);
        std::thread::spawn(move || hears.listen(BufReader::new(stdout)));
        let (child, stdin) = (Mutex::new(child), Mutex::new(stdin));
        Arc::new(Self { child, stdin, asked: AtomicU64::new(0), heard })
    }

    /// A client in that process.
    pub(crate) fn client(self: &Arc<Self>) -> Arc<dyn Backend> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let pushes = broadcast::channel(4096).0;
        self.heard.pushes.lock().unwrap().insert(number, pushes.clone());
        let client = RemoteClient { peer: Arc::clone(self), number, pushes };
        // Pushes are heard from the first moment on.
        client.tell("listen", &Value::Null);
        Arc::new(client)
    }

    /// Lets it take and release something for ever.
    pub(crate) fn hammer(self: &Arc<Self>, ask: &Ask) {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let (verb, what) = ("hammer", wire::ask_out(ask));
        self.say(&json!({"number": number, "client": number, "verb": verb, "what": what}));
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }

    fn say(&self, words: &Value) {
        writeln!(self.stdin.lock().unwrap(), "{words}").unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Heard {
    fn listen(&self, stdout: impl BufRead) {
        // The test harness has things to say, too.
        let words = stdout.lines().map_while(Result::ok);
        for line in words.filter_map(|line| serde_json::from_str::<Value>(&line).ok()) {
            if let Some(client) = line["client"].as_u64() {
                let pushes = self.pushes.lock().unwrap();
                let _ = pushes[&client].send(wire::push_in(&line["push"]));
            } else if let Some(number) = line["number"].as_u64() {
                let waits = self.answers.lock().unwrap().remove(&number);
                let _ = waits.map(|waits| waits.send(line));
            }
        }
        // A client that still waits for an answer learns that there will be none.
        self.answers.lock().unwrap().clear();
    }
}

/// A client in another process.
#[derive(Debug)]
struct RemoteClient {
    peer: Arc<Peer>,
    number: u64,
    pushes: broadcast::Sender<Push>,
}

impl RemoteClient {
    fn tell(&self, verb: &str, what: &Value) -> oneshot::Receiver<Value> {
        let number = self.peer.asked.fetch_add(1, Ordering::SeqCst);
        let (waits, answer) = oneshot::channel();
        self.peer.heard.answers.lock().unwrap().insert(number, waits);
        let client = self.number;
        self.peer.say(&json!({"number": number, "client": client, "verb": verb, "what": what}));
        answer
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        verb: &'static str,
        what: &Value,
        read: impl Fn(&Value) -> T + Send + 'a,
    ) -> Pending<'a, T> {
        let answer = self.tell(verb, what);
        Box::pin(async move {
            let answer = answer.await.map_err(|_| Fault::transient(verb, "the peer has died"))?;
            match answer.get("fault") {
                Some(fault) => Err(wire::fault_in(fault)),
                None => Ok(read(&answer["answer"])),
            }
        })
    }
}

impl Backend for RemoteClient {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::ALL;
        capabilities.durability = false;
        capabilities.witness = false;
        capabilities
    }

    fn acquire<'a>(&'a self, ask: &'a Ask) -> Pending<'a, Answer> {
        if ask.witness.is_some() {
            return Box::pin(async { Err(Fault::unsupported("witnesses")) });
        }
        self.call("acquire", &wire::ask_out(ask), wire::answer_in)
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
    ) -> Streaming<'a, (usize, Result<Standing, Fault>)> {
        let what: Vec<_> = batch.iter().map(wire::renewal_out).collect();
        let standings = self.call("renew", &json!(what), |answer| {
            let one = |pair: &Value| {
                let at = usize::try_from(pair[0].as_u64().unwrap()).unwrap();
                (at, Ok(wire::standing_in(&pair[1])))
            };
            answer.as_array().unwrap().iter().map(one).collect::<Vec<_>>()
        });
        let all = standings.map(|result| result.unwrap_or_else(|fault| panic!("{fault}")));
        Box::pin(stream::once(all).flat_map(stream::iter))
    }

    fn release<'a>(
        &'a self,
        target: &'a Target,
        how: ReleaseOptions,
    ) -> Pending<'a, ReleaseOutcome> {
        self.call("release", &wire::release_out(target, how), wire::outcome_in)
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> Pending<'a, Snapshot> {
        self.call("inspect", &json!(key.as_str()), wire::snapshot_in)
    }

    fn list<'a>(&'a self, prefix: &'a str, cursor: Option<&'a Cursor>) -> Pending<'a, Page> {
        self.call("list", &json!([prefix, cursor.map(|cursor| &cursor.0)]), wire::page_in)
    }

    fn probe(&self) -> Pending<'_, Health> {
        self.call("probe", &Value::Null, |answer| {
            let mut health = Health::new(answer[0].as_str().unwrap(), answer[1].as_str().unwrap());
            health.persistent = true;
            health
        })
    }

    fn pushes(&self) -> Streaming<'static, Push> {
        Box::pin(stream::unfold(self.pushes.subscribe(), |mut pushes| async move {
            pushes.recv().await.ok().map(|push| (push, pushes))
        }))
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions::at("another process")
    }
}

/// The life of a peer.
#[tokio::test]
#[ignore = "other tests run it as a process of its own"]
async fn speaks_for_another_process() {
    let file = PathBuf::from(std::env::var_os(FILE).expect("a file to speak for"));
    let clock = std::env::var_os(CLOCK).map(|clock| FileClock(clock.into()));
    let (lines, mut inbox) = tokio::sync::mpsc::channel::<String>(64);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            lines.blocking_send(line).unwrap();
        }
    });
    let mut clients: HashMap<u64, Arc<Sqlite>> = HashMap::new();
    while let Some(line) = inbox.recv().await {
        let words: Value = serde_json::from_str(&line).unwrap();
        let number = words["client"].as_u64().unwrap();
        let client = clients.entry(number).or_insert_with(|| Arc::new(open(&file, clock.as_ref())));
        let client = Arc::clone(client);
        if words["verb"] == "listen" {
            let mut pushes = client.pushes();
            tokio::spawn(async move {
                while let Some(push) = pushes.next().await {
                    println!("{}", json!({"client": number, "push": wire::push_out(push)}));
                }
            });
        }
        tokio::spawn(async move {
            let answer = match obey(&client, &words).await {
                Ok(answer) => json!({"number": words["number"], "answer": answer}),
                Err(fault) => json!({"number": words["number"], "fault": wire::fault_out(&fault)}),
            };
            println!("{answer}");
        });
    }
}

fn open(file: &Path, clock: Option<&FileClock>) -> Sqlite {
    match clock {
        Some(clock) => Sqlite::with_clock(file, "one", Arc::new(clock.clone())).unwrap(),
        None => Sqlite::open(&format!("sqlite:{}", file.display())).unwrap(),
    }
}

async fn obey(client: &Sqlite, words: &Value) -> Result<Value, Fault> {
    let what = &words["what"];
    Ok(match words["verb"].as_str().unwrap() {
        "acquire" => wire::answer_out(&client.acquire(&wire::ask_in(what)).await?),
        "renew" => {
            let batch: Vec<_> = what.as_array().unwrap().iter().map(wire::renewal_in).collect();
            let mut standings = Vec::new();
            let mut answers = client.renew(&batch);
            while let Some((at, standing)) = answers.next().await {
                standings.push(json!([at, wire::standing_out(&standing?)]));
            }
            json!(standings)
        }
        "release" => {
            let (target, how) = wire::release_in(what);
            wire::outcome_out(client.release(&target, how).await?)
        }
        "inspect" => {
            let key = Key::new(what.as_str().unwrap()).unwrap();
            wire::snapshot_out(&client.inspect(&key).await?)
        }
        "list" => {
            let cursor = what[1].as_str().map(|cursor| Cursor(cursor.to_owned()));
            wire::page_out(&client.list(what[0].as_str().unwrap(), cursor.as_ref()).await?)
        }
        "hammer" => loop {
            let ask = wire::ask_in(what);
            client.acquire(&ask).await?;
            client.release(&Target::Claim(ask.claim), ReleaseOptions::default()).await?;
        },
        "probe" => {
            let health = client.probe().await?;
            json!([health.identity, health.incarnation])
        }
        _ => Value::Null,
    })
}
