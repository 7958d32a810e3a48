//! A terminal, of 80 columns and 24 rows unless something else is said, that is a real one to the program that runs
//! on it.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    fs::{File, OpenOptions},
    io::Read,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    process::Command,
    sync::mpsc,
};

use rustix::{
    fs::OFlags,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::cli::set_variables;

pub(crate) const WIDTH: u16 = 80;
pub(crate) const HEIGHT: u16 = 24;

/// Both ends of a terminal: the keys, and the device for the program that runs on it.
pub(crate) fn terminal() -> (File, File) {
    terminal_of(WIDTH, HEIGHT)
}

/// The same of another size.
pub(crate) fn terminal_of(columns: u16, rows: u16) -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    resize(&master, columns, rows);
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let no_ctty = i32::try_from(OFlags::NOCTTY.bits()).unwrap();
    let slave = OpenOptions::new().read(true).write(true).custom_flags(no_ctty).open(name).unwrap();
    (File::from(master), slave)
}

/// Gives a terminal another size. The processes in its foreground are told by a signal.
pub(crate) fn resize(terminal: impl AsFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

/// The same command in the foreground of a terminal, in a session of its own.
pub(crate) fn in_foreground(device: &File, of: &Command) -> Command {
    let mut command = Command::new("setsid");
    command.args(["--ctty", "--wait"]).arg(of.get_program()).args(of.get_args());
    set_variables(&mut command, of);
    let side = || device.try_clone().unwrap();
    command.stdin(side()).stdout(side()).stderr(side());
    command
}

/// Everything that comes out of a terminal until all processes that have it open are gone.
pub(crate) fn read_all(mut master: File) -> mpsc::Receiver<String> {
    let (sender, all) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // The last one to leave is told by an error.
        while let Ok(read @ 1..) = master.read(&mut buffer) {
            if sender.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).is_err() {
                break;
            }
        }
    });
    all
}
