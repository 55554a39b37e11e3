//! nginx as the reference for relaying WebSockets: one worker in front of one server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::net::TcpStream;

use crate::machine::{self, Process};

const START_WAIT: Duration = Duration::from_secs(20);

pub(crate) struct Nginx {
    master: Process,
    pub(crate) address: String,
}

impl Nginx {
    pub(crate) async fn start(folder: &Path, upstream: SocketAddr) -> Result<Self> {
        let program = machine::program("nginx", "nginx-light")?;
        let folder = folder.join("nginx");
        std::fs::create_dir_all(&folder)?;
        let (here, port) = (folder.display(), machine::free_port()?);
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {here}/{kind};\n"))
            .concat();
        let config = format!(
            "daemon off;\nworker_processes 1;\npid {here}/nginx.pid;\nerror_log {here}/error.log warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n{temporary}access_log off;\nserver {{\nlisten 127.0.0.1:{port};\nlocation / {{\n\
             proxy_pass http://{upstream};\nproxy_http_version 1.1;\nproxy_set_header Upgrade $http_upgrade;\n\
             proxy_set_header Connection upgrade;\n}} }} }}\n"
        );
        let path = folder.join("nginx.conf");
        std::fs::write(&path, config)?;
        let (path, errors) = (path.display().to_string(), format!("{here}/error.log"));
        let mut master = Process::start(&program, &["-c", &path, "-e", &errors], &[], &folder.join("log"))?;
        let address = format!("127.0.0.1:{port}");
        let deadline = Instant::now() + START_WAIT;
        while TcpStream::connect(&address).await.is_err() {
            master.check()?;
            ensure!(Instant::now() < deadline, "nginx does not listen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(Self { master, address })
    }

    /// The process that does the work.
    pub(crate) fn worker(&self) -> Result<u32> {
        let workers = machine::children(self.master.pid())?;
        workers.first().copied().context("nginx has no worker")
    }
}
