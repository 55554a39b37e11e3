//! How long somebody waits for `./dev up` when everything is built: the first time, and with the data of the time before.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::machine;
use crate::report::{Report, Target};

const WAIT: Duration = Duration::from_secs(180);
const STOP_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn run(report: &mut Report) -> Result<()> {
    report.say("./dev up, twice");
    let folder = tempfile::Builder::new().prefix("omg-bench").tempdir()?;
    let data = folder.path().join("data");
    for (figure, target) in [
        ("./dev up on a built tree, no data", Target::None),
        ("./dev up on a built tree", Target::ValueAtMost(10.0)),
    ] {
        let begun = Instant::now();
        let mut up = Up::start(&data)?;
        up.wait()?;
        report.add(figure, begun.elapsed().as_secs_f64(), "s", None, target);
    }
    Ok(())
}

/// A running `./dev up`, which is stopped when this is dropped.
struct Up(Child);

impl Up {
    fn start(data: &Path) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(root.join("dev"));
        command.arg("up").env("OMGSERVERS_DATA", data).process_group(0);
        for option in [
            "--port",
            "--management-port",
            "--service-port",
            "--service-management-port",
        ] {
            command.args([option, &machine::free_port()?.to_string()]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        Ok(Self(command.spawn().context("./dev cannot be run")?))
    }

    /// Until it says that it is up.
    fn wait(&mut self) -> Result<()> {
        let mut output = self.0.stdout.take().context("its output is read")?;
        let deadline = Instant::now() + WAIT;
        let (mut said, mut part) = (String::new(), [0; 4_096]);
        while !said.contains("Ctrl-C stops it") {
            let bytes = output.read(&mut part)?;
            ensure!(bytes > 0, "./dev up ended: {said}");
            said += &String::from_utf8_lossy(&part[..bytes]);
            ensure!(Instant::now() < deadline, "./dev up does not come up: {said}");
        }
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        machine::terminate(self.0.id());
        let deadline = Instant::now() + STOP_WAIT;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
