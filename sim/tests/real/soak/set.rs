//! The replica set of a soak: three members in namespaces of their own, with TLS, with users, and with
//! wall clocks that can be put anywhere.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use futures::future::join_all;
use mongodb::{
    Client,
    bson::{DateTime, Document, doc, oid::ObjectId},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use super::{
    net::{Place, run},
    role,
};
use crate::support::wait::{LIMIT, until};

pub(crate) const MEMBERS: usize = 3;
const NAME: &str = "soak";
const PORT: u16 = 27017;
/// A member that is well answers in milliseconds.
const ANSWER: Duration = Duration::from_secs(1);
const PASSWORD: &str = "for this run only";
const ROOT: &str = "harness";
const USER: &str = "fleet";

#[derive(Debug)]
struct Member {
    child: Option<Child>,
    /// Of the harness, to this very member.
    client: Option<Client>,
}

#[derive(Debug)]
pub(crate) struct Set {
    folder: PathBuf,
    program: PathBuf,
    preload: PathBuf,
    members: Vec<Member>,
    /// Distance of each clock from the true time, in milliseconds.
    offsets: [i64; MEMBERS],
}

/// Answer of one member about itself.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) is_primary: bool,
    pub(crate) is_secondary: bool,
    election: ObjectId,
    pub(crate) clock: DateTime,
}

impl Set {
    /// Starts a set whose elections take so long, with these clocks, and makes its users.
    pub(crate) async fn start(
        folder: &Path,
        program: &Path,
        preload: &Path,
        election: Duration,
        offsets: [i64; MEMBERS],
        database: &str,
    ) -> Self {
        certify(folder, preload);
        let members = (0..MEMBERS).map(|_| Member { child: None, client: None }).collect();
        let mut set = Self {
            folder: folder.to_owned(),
            program: program.to_owned(),
            preload: preload.to_owned(),
            members,
            offsets,
        };
        for member in 0..MEMBERS {
            fs::create_dir_all(set.member_folder(member).join("db")).unwrap();
            set.write_offset(member);
            // Before there is a user to log in as, no client has to.
            set.spawn(member, &["--transitionToAuth"]);
            set.members[member].client = Some(client(&set.direct_uri(member, None)).await);
        }
        set.initiate(election, database).await;
        for member in 0..MEMBERS {
            set.kill(member);
        }
        for member in 0..MEMBERS {
            set.members[member].client = Some(client(&set.direct_uri(member, Some(ROOT))).await);
            set.spawn(member, &[]);
        }
        set.until_whole().await;
        set
    }

    async fn initiate(&self, election: Duration, database: &str) {
        let members = (0..MEMBERS).map(|member| {
            doc! { "_id": i64::try_from(member).unwrap(), "host": format!("{}:{PORT}", Place::Member(member).address()) }
        });
        let settings = doc! {
            "electionTimeoutMillis": i64::try_from(election.as_millis()).unwrap(),
            "heartbeatIntervalMillis": i64::try_from(election.as_millis() / 4).unwrap(),
            // A member that hangs is given up as soon as an election may take.
            "heartbeatTimeoutSecs": i64::try_from(election.as_secs().max(1)).unwrap(),
        };
        let members: Vec<_> = members.collect();
        let config = doc! { "_id": NAME, "version": 1, "members": members, "settings": settings };
        for member in 0..MEMBERS {
            until("a member answers", async || self.hello(member).await.ok_or("no answer")).await;
        }
        // On a busy machine one may not answer in time, and then it is refused.
        until("the set is initiated", async || {
            let initiate = doc! { "replSetInitiate": config.clone() };
            let done = self.ask_within(0, initiate, LIMIT / 4).await;
            done.or(self.ask(0, doc! { "replSetGetConfig": 1 }).await).ok_or("no answer")
        })
        .await;
        self.until_whole().await;
        let primary = self.until_primary(None).await;
        let database = self.client_of(primary).database(database);
        let admin = self.client_of(primary).database("admin");
        let root = doc! { "createUser": ROOT, "pwd": PASSWORD, "roles": ["root"] };
        admin.run_command(root).await.unwrap();
        for command in [
            role::documented(),
            doc! { "createRole": "program", "privileges": role::of_the_program(database.name()), "roles": [] },
            doc! { "createUser": USER, "pwd": PASSWORD, "roles": ["tenure", "program"] },
        ] {
            database.run_command(command).await.unwrap();
        }
        // All members know the users before they ask for them.
        let note = doc! {
            "appendOplogNote": 1, "data": { "soak": "users" }, "writeConcern": { "w": 3, "wtimeout": 60_000 },
        };
        admin.run_command(note).await.unwrap();
    }

    fn member_folder(&self, member: usize) -> PathBuf {
        self.folder.join(Place::Member(member).name())
    }

    fn tls(&self) -> String {
        format!("tls=true&tlsCAFile={}", self.folder.join("ca.pem").display())
    }

    fn direct_uri(&self, member: usize, user: Option<&str>) -> String {
        let login = user.map_or_else(String::new, |user| format!("{user}:{}@", PASSWORD.replace(' ', "%20")));
        let (address, tls) = (Place::Member(member).address(), self.tls());
        let limits = "serverSelectionTimeoutMS=800&connectTimeoutMS=800&heartbeatFrequencyMS=500";
        format!("mongodb://{login}{address}:{PORT}/?authSource=admin&directConnection=true&{limits}&{tls}")
    }

    fn uri_as(&self, login: &str, source: &str) -> String {
        let hosts: Vec<_> =
            (0..MEMBERS).map(|member| format!("{}:{PORT}", Place::Member(member).address())).collect();
        let (hosts, tls) = (hosts.join(","), self.tls());
        let login = format!("{login}:{}", PASSWORD.replace(' ', "%20"));
        format!(
            "mongodb://{login}@{hosts}/?replicaSet={NAME}&authSource={source}&heartbeatFrequencyMS=1000&{tls}"
        )
    }

    /// For the fleet, whose user has no more rights than it needs.
    pub(crate) fn uri(&self, database: &str) -> String {
        self.uri_as(USER, database)
    }

    /// For the harness.
    pub(crate) fn root_uri(&self) -> String {
        self.uri_as(ROOT, "admin")
    }

    fn write_offset(&self, member: usize) {
        let folder = self.member_folder(member);
        let (fresh, file) = (folder.join("clock.new"), folder.join("clock"));
        let millis = self.offsets[member];
        fs::write(
            &fresh,
            format!(
                "{}{}.{:03}\n",
                if millis < 0 { "-" } else { "+" },
                millis.abs() / 1000,
                millis.abs() % 1000
            ),
        )
        .unwrap();
        fs::rename(fresh, file).unwrap();
    }

    fn spawn(&mut self, member: usize, more: &[&str]) {
        assert!(self.members[member].child.is_none(), "member {member} runs already");
        let folder = self.member_folder(member);
        let log = fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
        let place = Place::Member(member);
        let certificate = self.folder.join("member.pem");
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &place.name()])
            .args(["env", &format!("LD_PRELOAD={}", self.preload.display())])
            .arg(&self.program)
            .args(["--replSet", NAME, "--port", &PORT.to_string(), "--bind_ip", &place.address()])
            .arg("--dbpath")
            .arg(folder.join("db"))
            .args(["--nounixsocket", "--oplogSize", "512", "--wiredTigerCacheSizeGB", "0.25"])
            .args(["--wiredTigerEngineConfigString", "log=(prealloc=false,file_max=10MB)"])
            .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
            .args(["--setParameter", "enableTestCommands=1"])
            // Logging in is not what is tested here, and the fleet does it after every fault.
            .args(["--setParameter", "scramSHA256IterationCount=5000"])
            .args(["--tlsMode", "requireTLS", "--tlsAllowConnectionsWithoutCertificates", "--tlsCAFile"])
            .arg(self.folder.join("ca.pem"))
            .arg("--tlsCertificateKeyFile")
            .arg(certificate)
            .arg("--keyFile")
            .arg(self.folder.join("key"))
            .args(more)
            .env("FAKETIME_TIMESTAMP_FILE", folder.join("clock"))
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_CACHE_DURATION", "1")
            // A key that is typed here to end the run ends the harness first.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.members[member].child = Some(command.spawn().unwrap());
    }

    fn client_of(&self, member: usize) -> &Client {
        self.members[member].client.as_ref().expect("it was made at the start")
    }

    /// Runs a command on this very member. Nothing, if it does not do it.
    pub(crate) async fn ask(&self, member: usize, command: Document) -> Option<Document> {
        self.ask_within(member, command, ANSWER).await
    }

    pub(crate) async fn ask_within(
        &self,
        member: usize,
        command: Document,
        limit: Duration,
    ) -> Option<Document> {
        let admin = self.client_of(member).database("admin");
        timeout(limit, admin.run_command(command)).await.ok()?.ok()
    }

    pub(crate) async fn hello(&self, member: usize) -> Option<Hello> {
        let hello = self.ask(member, doc! { "hello": 1 }).await?;
        Some(Hello {
            is_primary: hello.get_bool("isWritablePrimary").unwrap_or(false),
            is_secondary: hello.get_bool("secondary").unwrap_or(false),
            election: hello.get_object_id("electionId").unwrap_or(ObjectId::from_bytes([0; 12])),
            clock: *hello.get_datetime("localTime").ok()?,
        })
    }

    /// The member that takes writes, as far as the members know. Of two, the one elected later.
    pub(crate) async fn primary(&self) -> Option<usize> {
        self.primary_of(&[0, 1, 2]).await
    }

    async fn primary_of(&self, members: &[usize]) -> Option<usize> {
        let answers = join_all(members.iter().map(|member| self.hello(*member))).await;
        let claims = members.iter().copied().zip(answers);
        let claims =
            claims.filter_map(|(member, hello)| Some((member, hello.filter(|hello| hello.is_primary)?)));
        claims.max_by_key(|(_, hello)| hello.election).map(|(member, _)| member)
    }

    /// Waits for a primary, another one than `not` if one is given.
    pub(crate) async fn until_primary(&self, not: Option<usize>) -> usize {
        let asked: Vec<_> = (0..MEMBERS).filter(|member| Some(*member) != not).collect();
        until("there is a primary", async || self.primary_of(&asked).await.ok_or("none")).await
    }

    /// Waits until one member is primary and all others follow.
    pub(crate) async fn until_whole(&self) -> usize {
        until("the set is whole", async || {
            let answers = join_all((0..MEMBERS).map(|member| self.hello(member))).await;
            let is = |is: fn(&Hello) -> bool| answers.iter().map(move |hello| hello.as_ref().is_some_and(is));
            let followers = is(|hello| hello.is_secondary).filter(|is| *is).count();
            let primary = is(|hello| hello.is_primary).position(|is| is);
            primary.filter(|_| followers == MEMBERS - 1).ok_or(answers)
        })
        .await
    }

    /// Kill -9.
    pub(crate) fn kill(&mut self, member: usize) {
        let mut child = self.members[member].child.take().expect("it runs");
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "it ran until then");
    }

    /// Starts it again on its data.
    pub(crate) fn restart(&mut self, member: usize) {
        self.spawn(member, &[]);
    }

    fn pid(&self, member: usize) -> Pid {
        Pid::from_child(self.members[member].child.as_ref().expect("it runs"))
    }

    /// SIGSTOP. Returns when all of it stands still.
    pub(crate) async fn freeze(&self, member: usize) {
        let pid = self.pid(member);
        kill_process(pid, Signal::STOP).unwrap();
        until("a member stands still", async || is_stopped(pid).then_some(()).ok_or("it runs")).await;
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self, member: usize) {
        let pid = self.pid(member);
        assert!(is_stopped(pid), "it stood still until now");
        kill_process(pid, Signal::CONT).unwrap();
    }

    /// Distance of a member's clock from the true time, in milliseconds.
    pub(crate) fn offset(&self, member: usize) -> i64 {
        self.offsets[member]
    }

    /// Puts the clock of a member so far from the true time. Returns when it shows that.
    pub(crate) async fn step_clock(&mut self, member: usize, millis: i64) {
        self.offsets[member] = millis;
        self.write_offset(member);
        let set = &*self;
        until("a clock shows its step", async || {
            let shown = set.hello(member).await.map(|hello| hello.clock.timestamp_millis());
            let off = shown.map(|shown| shown - DateTime::now().timestamp_millis() - millis);
            off.filter(|off| off.abs() < 900).map(drop).ok_or(off)
        })
        .await;
    }
}

/// The ends of the members' logs, to search for a cause.
pub(crate) fn logs(folder: &Path) -> String {
    let tail = |member| {
        let name = Place::Member(member).name();
        let log = fs::read_to_string(folder.join(&name).join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(12).collect();
        format!("{name}:\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    };
    (0..MEMBERS).map(tail).collect()
}

fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
}

async fn client(uri: &str) -> Client {
    Client::with_uri_str(uri).await.expect("the URI is valid")
}

/// An authority, a certificate for all members, and the secret they share.
///
/// The certificates are two days old, so that members may be behind the true time.
fn certify(folder: &Path, preload: &Path) {
    let path = |name: &str| folder.join(name).display().to_string();
    let aged = |arguments: &[&str]| {
        let preload = format!("LD_PRELOAD={}", preload.display());
        run("env", &[&[preload.as_str(), "FAKETIME=-2d", "openssl"], arguments].concat());
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let (ca_key, ca) = (path("ca.key"), path("ca.pem"));
    let authority = ["-x509", "-days", "30", "-subj", "/CN=soak authority", "-keyout", &ca_key, "-out", &ca];
    aged(&[&["req"], &key[..], &authority].concat());
    let (member_key, request, certificate) = (path("member.key"), path("member.csr"), path("member.crt"));
    let subject = ["-subj", "/O=soak/CN=member", "-keyout", &member_key, "-out", &request];
    aged(&[&["req"], &key[..], &subject].concat());
    let names: Vec<_> =
        (0..MEMBERS).map(|member| format!("IP:{}", Place::Member(member).address())).collect();
    let extensions = format!("subjectAltName={}\nextendedKeyUsage=serverAuth,clientAuth\n", names.join(","));
    fs::write(path("extensions"), extensions).unwrap();
    let sign = ["x509", "-req", "-in", &request, "-CA", &ca, "-CAkey", &ca_key, "-CAcreateserial"];
    aged(&[&sign[..], &["-days", "30", "-extfile", &path("extensions"), "-out", &certificate]].concat());
    let both = fs::read_to_string(&certificate).unwrap() + &fs::read_to_string(&member_key).unwrap();
    fs::write(path("member.pem"), both).unwrap();
    run("openssl", &["rand", "-base64", "-out", &path("key"), "300"]);
    run("chmod", &["600", &path("key")]);
}
