//! A private Docker engine for one test: its own daemon, containerd, data, network and process namespaces, next to
//! whatever engine the machine has. When the `Engine` is dropped, or the test process is killed, everything in it ends
//! at once and its mounts, bridges and firewall rules vanish with the namespaces. Needs root and the packages
//! `docker.io`, `iproute2`, `iptables`, and for TLS `openssl`.

use std::{
    fs,
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, SyncSender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

/// A daemon starts in about a second here; a loaded machine takes longer.
const START_WAIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// First process in the namespaces: waits for the cable, then runs the daemon and reaps what it leaves behind.
const INIT: &str = r#"
set -e
ip link set lo up
n=0; until ip link show eth0 >/dev/null 2>&1; do n=$((n+1)); [ $n -lt 400 ]; sleep 0.05; done
ip addr add "$1/30" dev eth0; ip link set eth0 up; ip route add default via "$2"
shift 2
dockerd "$@" &
wait
"#;

/// Without CAP_SYS_RESOURCE (in sandboxes) a negative `oom_score_adj` is refused, and no container starts.
const RUNTIME: &str = r#"#!/bin/sh
bundle=; before=
for word in "$@"; do case $before in --bundle|-b) bundle=$word;; esac; before=$word; done
if [ -n "$bundle" ] && [ -f "$bundle/config.json" ]; then
  sed -i 's/"oomScoreAdj":-[0-9]*,//; s/,"oomScoreAdj":-[0-9]*//' "$bundle/config.json"
fi
exec runc "$@"
"#;

/// A running engine.
pub struct Engine {
    dir: PathBuf,
    options: Vec<String>,
    tls: bool,
    link: Link,
    keeper: Option<Keeper>,
}

impl Engine {
    /// Starts an engine that keeps everything in `dir`.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::start_with(dir, false, &[])
    }

    /// The same, with further options of dockerd; with `tls` also at `tcp_address`, for holders of a certificate.
    pub fn start_with(dir: &Path, tls: bool, options: &[&str]) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let dir = dir.canonicalize()?;
        fs::write(dir.join("daemon.json"), "{}")?; // not the machine's own
        fs::write(dir.join("runtime"), RUNTIME)?;
        fs::set_permissions(dir.join("runtime"), fs::Permissions::from_mode(0o755))?;
        let link = Link::reserve()?;
        if tls {
            make_certificates(&dir.join("tls"), link.engine())?;
        }
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut engine = Self {
            dir,
            options,
            tls,
            link,
            keeper: None,
        };
        engine.restart()?;
        Ok(engine)
    }

    /// `unix:///…/docker.sock`
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// `tcp://…:2376`; only with TLS.
    pub fn tcp_address(&self) -> String {
        format!("tcp://{}:2376", self.link.engine())
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("docker.sock")
    }

    /// Folder with `ca.pem`, `cert.pem` and `key.pem` for clients.
    pub fn certificates(&self) -> PathBuf {
        self.dir.join("tls")
    }

    /// This machine as containers see it, also by the name `host.docker.internal`.
    pub fn gateway(&self) -> Ipv4Addr {
        self.link.machine()
    }

    /// Runs the docker command line against this engine; answers what it printed.
    pub fn docker(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new("docker").arg("-H").arg(self.address()).args(arguments))
    }

    /// The host is gone at once, with all its containers; its disk stays.
    pub fn kill(&mut self) {
        self.keeper = None;
        remove_control_groups(&self.link.name());
        let _ = fs::remove_file(self.socket());
    }

    /// Starts the daemon again, as after a power cut if it was running.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        for stale in ["exec", "docker.pid"] {
            let path = self.dir.join(stale);
            let _ = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
        }
        let keeper = Keeper::start(self.command()?)?;
        self.link.plug(keeper.pid)?;
        self.keeper = Some(keeper);
        let deadline = Instant::now() + START_WAIT;
        while !answers(&self.socket()) {
            if Instant::now() > deadline || !self.runs() {
                let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
                bail!("the engine in `{}` did not start: {}", self.dir.display(), tail(&log));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// The daemon stops answering without being gone; `thaw` ends it.
    pub fn freeze(&self) -> Result<()> {
        self.signal_daemon("-STOP")
    }

    pub fn thaw(&self) -> Result<()> {
        self.signal_daemon("-CONT")
    }

    /// Pulls the cable: what goes over `tcp_address` is lost without an answer; `heal` plugs it in again.
    pub fn partition(&self) -> Result<()> {
        ip(&["link", "set", &self.link.name(), "down"])
    }

    pub fn heal(&self) -> Result<()> {
        ip(&["link", "set", &self.link.name(), "up"])
    }

    fn command(&self) -> Result<Command> {
        let inside = |name: &str| self.dir.join(name).display().to_string();
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.dir.join("log"))?;
        let mut command = Command::new("setpriv");
        command
            // The namespaces end with the test, however it ends.
            .args([
                "--pdeathsig",
                "KILL",
                "unshare",
                "--net",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args(["--mount-proc", "sh", "-c", INIT, "init"])
            .args([self.link.engine().to_string(), self.link.machine().to_string()])
            .args(["--config-file", &inside("daemon.json"), "--data-root", &inside("data")])
            .args(["--exec-root", &inside("exec"), "--pidfile", &inside("docker.pid")])
            .args([
                "-H",
                &self.address(),
                "--cgroup-parent",
                &format!("/{}", self.link.name()),
            ])
            .args([
                "--host-gateway-ip",
                &self.link.machine().to_string(),
                "--log-level",
                "warn",
            ])
            .args([
                "--add-runtime",
                &format!("test={}", inside("runtime")),
                "--default-runtime",
                "test",
            ])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if self.tls {
            let tls = |name: &str| self.certificates().join(name).display().to_string();
            command
                .args(["-H", &self.tcp_address(), "--tlsverify", "--tlscacert", &tls("ca.pem")])
                .args(["--tlscert", &tls("server.pem"), "--tlskey", &tls("server-key.pem")]);
        }
        Ok(command)
    }

    fn runs(&self) -> bool {
        self.keeper
            .as_ref()
            .is_some_and(|keeper| Path::new(&format!("/proc/{}", keeper.pid)).exists())
    }

    fn signal_daemon(&self, signal: &str) -> Result<()> {
        let data = self.dir.join("data").display().to_string();
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_daemon = |pid: &u32| {
            let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = bytes.split(|byte| *byte == 0).collect();
            words[0].ends_with(b"dockerd") && words.contains(&data.as_bytes())
        };
        let pid = pids.into_iter().find(is_daemon).context("the daemon is not running")?;
        run(Command::new("kill").args([signal, &pid.to_string()])).map(drop)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.kill();
        self.link.unplug();
    }
}

/// Why no private engine can be started here; `None` if one can.
pub fn missing() -> Option<String> {
    let tools = ["dockerd", "containerd", "runc", "ip", "iptables", "unshare", "setpriv"];
    let found = |tool: &&str| {
        [
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
            "/sbin",
            "/bin",
        ]
        .iter()
        .any(|folder| Path::new(folder).join(tool).exists())
    };
    if let Some(tool) = tools.iter().find(|tool| !found(tool)) {
        return Some(format!("`{tool}` is not installed"));
    }
    match run(Command::new("unshare").args(["--net", "--mount", "--pid", "--fork", "true"])) {
        Ok(_) => None,
        Err(error) => Some(format!("namespaces cannot be made: {error:#}")),
    }
}

/// For the first line of a test: whether to go on.
pub fn wanted() -> bool {
    let reason = missing();
    if let Some(reason) = &reason {
        skip("docker", reason);
    }
    reason.is_none()
}

/// Says that a test is skipped for want of `what`; fails it if `OMGSERVERS_TEST_REQUIRE` names that.
pub fn skip(what: &str, reason: &str) {
    let required = std::env::var_os("OMGSERVERS_TEST_REQUIRE").unwrap_or_default();
    assert!(
        !required.to_string_lossy().contains(what),
        "this test needs {what}: {reason}"
    );
    let _ = writeln!(io::stderr(), "skipped, since there is no {what}: {reason}");
}

/// The thread that started the daemon: the kernel ends a child with the thread that made it, not with the process.
struct Keeper {
    pid: u32,
    end: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn start(mut command: Command) -> Result<Self> {
        let (end, ended) = mpsc::sync_channel(1);
        let (started, start) = mpsc::sync_channel::<io::Result<u32>>(1);
        let thread = thread::spawn(move || {
            let spawned: io::Result<Child> = command.spawn();
            let told = started.send(spawned.as_ref().map(Child::id).map_err(|cause| cause.kind().into()));
            if let (Ok(mut child), Ok(())) = (spawned, told) {
                let _ = ended.recv();
                let _ = child.kill();
                let _ = child.wait();
            }
        });
        let pid = start.recv()?.context("the engine cannot be started")?;
        Ok(Self {
            pid,
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The cable between the machine and the engine's network namespace: a network of four addresses. Its number is
/// reserved, among all tests of the machine, by a lock that is held as long as the engine lives.
struct Link {
    number: u8,
    _reserved: fs::File,
}

impl Link {
    fn reserve() -> Result<Self> {
        for number in 0..=u8::MAX {
            let file = fs::File::create(format!("/run/omgservers-test-engine-{number}.lock"))?;
            if file.try_lock().is_ok() {
                return Ok(Self {
                    number,
                    _reserved: file,
                });
            }
        }
        bail!("256 engines are running already")
    }

    fn name(&self) -> String {
        format!("omge{}", self.number)
    }

    fn machine(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 232, self.number, 1)
    }

    fn engine(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 232, self.number, 2)
    }

    fn plug(&self, pid: u32) -> Result<()> {
        self.unplug();
        let own = fs::read_link("/proc/self/ns/net")?;
        let deadline = Instant::now() + START_WAIT;
        while fs::read_link(format!("/proc/{pid}/ns/net"))? == own {
            ensure!(
                Instant::now() < deadline,
                "the engine's network namespace did not appear"
            );
            thread::sleep(POLL_INTERVAL);
        }
        let name = self.name();
        ip(&[
            "link",
            "add",
            &name,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            &pid.to_string(),
        ])?;
        ip(&["addr", "add", &format!("{}/30", self.machine()), "dev", &name])?;
        ip(&["link", "set", &name, "up"])
    }

    fn unplug(&self) {
        let _ = ip(&["link", "del", &self.name()]);
    }
}

/// Removes the control groups that killed containers left behind; of version 1 or 2.
fn remove_control_groups(name: &str) {
    fn remove(group: &Path) {
        for child in fs::read_dir(group).into_iter().flatten().flatten() {
            if child.file_type().is_ok_and(|kind| kind.is_dir()) {
                remove(&child.path());
            }
        }
        // A group is busy for a moment after its last process was killed.
        for _ in 0..40 {
            match fs::remove_dir(group) {
                Err(cause) if cause.kind() == io::ErrorKind::ResourceBusy => thread::sleep(POLL_INTERVAL),
                _ => break,
            }
        }
    }
    let root = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for group in controllers.chain([root.to_owned()]).map(|folder| folder.join(name)) {
        if group.is_dir() {
            remove(&group);
        }
    }
}

/// One authority, one certificate for the daemon and one for its clients.
fn make_certificates(folder: &Path, address: Ipv4Addr) -> Result<()> {
    fs::create_dir_all(folder)?;
    let openssl = |words: &str| {
        run(Command::new("openssl")
            .current_dir(folder)
            .args(words.split_whitespace()))
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -days 30 -subj /CN=test-authority -addext basicConstraints=critical,CA:TRUE \
         -addext keyUsage=critical,keyCertSign -keyout ca-key.pem -out ca.pem"
    ))?;
    for (name, certificate, key_file, usage) in [
        ("engine", "server.pem", "server-key.pem", "serverAuth"),
        ("client", "cert.pem", "key.pem", "clientAuth"),
    ] {
        let extensions = format!(
            "basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage={usage}\n\
             subjectAltName=IP:{address}\n"
        );
        fs::write(folder.join("extensions"), extensions)?;
        openssl(&format!("req {key} -subj /CN={name} -keyout {key_file} -out request"))?;
        openssl(&format!(
            "x509 -req -in request -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 30 -extfile extensions -out {certificate}"
        ))?;
    }
    Ok(())
}

fn answers(socket: &Path) -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /_ping HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.contains(" 200 "))
    };
    ask().unwrap_or(false)
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments)).map(drop)
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", tail(&said));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
