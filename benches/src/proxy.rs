//! A TCP proxy that delays every byte by the same time, in both directions.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use distlock_testkit::servers::RedisServer;

use crate::worker::Worker;

/// What makes a round trip of a millisecond.
pub(crate) const HALF_A_MS: Duration = Duration::from_micros(500);

/// Sleeping threads wake up late by about this; the rest of the delay is spun away.
const LATE: Duration = Duration::from_micros(70);

/// Listens on a free port for as long as the process lives, and returns the URL of the server
/// behind it.
pub(crate) fn start(to: &RedisServer, each_way: Duration) -> String {
    serve(to.port(), each_way)
}

fn serve(to_port: u16, each_way: Duration) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // Without a server behind it, a connection is closed as it comes.
            let Ok(far) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
            near.set_nodelay(true).expect("TCP can do that");
            far.set_nodelay(true).expect("TCP can do that");
            let (near_too, far_too) =
                (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
            carry(near, far, each_way);
            carry(far_too, near_too, each_way);
        }
    });
    format!("redis://127.0.0.1:{port}/")
}

/// The same in a process of its own, so that its CPU counts for no contender. The proxy lives as
/// long as the worker.
pub(crate) fn start_apart(to: &RedisServer, each_way: Duration) -> (Worker, String) {
    let micros = each_way.as_micros().to_string();
    let mut worker = Worker::start(&["proxy", &to.port().to_string(), &micros]);
    let url = worker.line();
    (worker, url)
}

/// The life of such a process.
pub(crate) fn work(to_port: u16, each_way: Duration) {
    println!("{}", serve(to_port, each_way));
    let mut line = String::new();
    // Reads until the parent closes the pipe.
    let _ = std::io::stdin().read_line(&mut line);
}

/// One direction: a thread that reads and notes the time, and one that writes when it has come.
fn carry(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = channel();
    thread::spawn(move || read(from, &sender, delay));
    thread::spawn(move || write(to, &receiver));
}

fn read(mut from: TcpStream, sender: &Sender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(size @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + delay, buffer[..size].to_vec())).is_err() {
            return;
        }
    }
}

fn write(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = receiver.recv() {
        if let Some(left) = due.checked_duration_since(Instant::now() + LATE) {
            thread::sleep(left);
        }
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    // The other side may have gone already.
    let _ = to.shutdown(Shutdown::Both);
}
