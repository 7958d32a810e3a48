//! Proof that a session's process is gone, and every job under the session with it.
//!
//! Each session holds an exclusive lock (`flock`) on a file of its own. The kernel lets it go when the last descriptor
//! of that open file is closed, at the latest when the process has ended, and at no other time. The lock is taken
//! once, when the file is made, so a process that gets the lock of that very file *shared* knows that its holder is
//! gone for ever.
//!
//! **Nothing else is proof.** A file that is missing may have been deleted; another inode is another file; under
//! another boot id another kernel gave the locks (a sandbox may have its own and see the same files); a process that
//! does not run may go on. Then the ttl counts as ever.

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod elsewhere;
mod identity;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod listener;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod files;

#[cfg(any(target_os = "linux", target_os = "android"))]
#[cfg(test)]
mod tests;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use elsewhere::{Listener, SessionFiles};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use files::{NoProof, Proof, SessionFiles};
pub(super) use identity::Identity;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use listener::{Listener, OnRecord, Register};
