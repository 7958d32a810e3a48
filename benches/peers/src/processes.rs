//! Child processes that die with this one, however it ends, and ports for them.

use std::{
    net::{Ipv4Addr, TcpListener},
    process::{Child, Command},
};

/// A command that the kernel kills when the thread that starts it ends: that must be the main thread, which lives
/// as long as the process. A frozen child dies of it as well.
pub(crate) fn bound(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// A child that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Bound(pub(crate) Child);

impl Bound {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // An error means that the child has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago. Another process may take it before the server does, which then ends at once.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// A fresh folder below that for temporary files, which scripts/peers makes for the run and removes after it.
pub(crate) fn folder(name: &str) -> String {
    let path = std::env::temp_dir().join(format!("tenure-peers-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("the folder for temporary files takes one");
    path.to_str().expect("its name is text").to_owned()
}
