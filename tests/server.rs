//! One server as a process of its own, with nothing but the settings that a story gives it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{eventually, fleet, free_port, program};

pub struct Server {
    process: Child,
    log: PathBuf,
    /// The public address.
    pub base: String,
    management: String,
}

impl Server {
    /// Starts `omgservers-<name>` on free ports of loopback; its log goes to the folder.
    pub fn start(name: &str, folder: &Path, settings: &[(&str, &str)]) -> Self {
        let [port, management_port] = [(); 2].map(|()| free_port());
        let log = folder.join(format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a log file");
        let process = Command::new(program(&format!("omgservers-{name}")))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("OMGSERVERS_HTTP_ADDRESS", "127.0.0.1")
            .env("OMGSERVERS_HTTP_PORT", port.to_string())
            .env("OMGSERVERS_MANAGEMENT_PORT", management_port.to_string())
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("the log is shared"))
            .stderr(file)
            .spawn()
            .expect("the server starts");
        Self {
            process,
            log,
            base: format!("http://127.0.0.1:{port}"),
            management: format!("http://127.0.0.1:{management_port}"),
        }
    }

    /// Waits until it can work.
    pub async fn ready(self) -> Self {
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build();
        let client = client.expect("a client");
        let url = format!("{}/health/ready", self.management);
        let server = std::sync::Mutex::new(self);
        eventually("the server is ready", || async {
            {
                let mut server = server.lock().expect("nobody panics with it");
                let ended = server.process.try_wait().expect("it can be waited for");
                assert!(ended.is_none(), "it ended:\n{}", server.log());
            }
            let asked = client.get(&url).send();
            asked
                .await
                .is_ok_and(|answer| answer.status().is_success())
                .then_some(())
        })
        .await;
        server.into_inner().expect("nobody panicked with it")
    }

    /// Waits until it has ended by itself, and gives its exit code and what it said.
    pub async fn ended(mut self) -> (Option<i32>, String) {
        let process = std::sync::Mutex::new(&mut self.process);
        let status = eventually("the server ends", || async {
            let mut process = process.lock().expect("nobody panics with it");
            process.try_wait().expect("it can be waited for")
        });
        (status.await.code(), self.log())
    }

    /// Asks it to stop and waits until it has.
    pub async fn stop(self) -> String {
        fleet::signal(self.process.id(), "TERM");
        let (code, log) = self.ended().await;
        assert_eq!(code, Some(0), "{log}");
        log
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.process.kill().ok();
            self.process.wait().ok();
        }
    }
}
