//! Which parts are started, with which settings.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Up;
use super::folder::{Folder, PARTS, Secrets, pid_file};
use super::host::Host;
use super::log::Log;
use super::part::Part;
use crate::failure::{Failure, Result};

/// The public address.
const SERVER_URI: &str = "OMGSERVERS_SERVER_URI";

/// Service and dispatcher, in the order in which they are started.
pub(super) fn parts(up: &Up, folder: &Folder, secrets: &Secrets, host: &Host) -> Result<[Part; 2]> {
    let programs = programs(up)?;
    let part = |name: &'static str, management_port: u16, environment: Vec<(&str, String)>| {
        let program = programs.join(format!("omgservers-{name}"));
        if !program.is_file() {
            let failure = Failure::refused(format!("`{}` is missing", program.display()));
            return Err(failure.hint("`cargo build --release` builds it; --programs says where it is"));
        }
        Ok(Part {
            name,
            program,
            environment: environment
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            ready_url: format!("http://127.0.0.1:{management_port}/health/ready"),
            log: Log::new(folder.path().join("logs").join(format!("{name}.log"))),
            pid_file: pid_file(folder.path(), name),
        })
    };
    let [service, dispatcher] = PARTS;
    Ok([
        part(
            service,
            up.service_management_port,
            service_environment(up, folder, secrets, host)?,
        )?,
        part(dispatcher, up.management_port, dispatcher_environment(up, secrets))?,
    ])
}

fn service_environment(
    up: &Up,
    folder: &Folder,
    secrets: &Secrets,
    host: &Host,
) -> Result<Vec<(&'static str, String)>> {
    let text = |path: &Path| {
        path.to_str()
            .map(str::to_owned)
            .with_context(|| format!("`{}` is not UTF-8", path.display()))
    };
    let mut environment = vec![
        // Everybody comes through the dispatcher.
        ("OMGSERVERS_HTTP_ADDRESS", Ipv4Addr::LOCALHOST.to_string()),
        ("OMGSERVERS_HTTP_PORT", up.service_port.to_string()),
        ("OMGSERVERS_MANAGEMENT_PORT", up.service_management_port.to_string()),
        ("OMGSERVERS_DATA_DIRECTORY", text(folder.path())?),
        ("OMGSERVERS_BOOTSTRAP_ENABLED", "true".to_owned()),
        ("OMGSERVERS_BOOTSTRAP_ADMIN_USER_PASSWORD", secrets.admin.clone()),
        ("OMGSERVERS_BOOTSTRAP_SUPPORT_USER_PASSWORD", secrets.support.clone()),
        (
            "OMGSERVERS_BOOTSTRAP_DISPATCHER_USER_PASSWORD",
            secrets.dispatcher.clone(),
        ),
        (
            "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__DOCKER_DAEMON_URI",
            host.uri.clone(),
        ),
        (
            "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__CPU_COUNT",
            host.cpu_count.to_string(),
        ),
        (
            "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__MEMORY_SIZE",
            host.memory_mb.to_string(),
        ),
        (
            "OMGSERVERS_BOOTSTRAP_DEFAULT_POOL_DOCKER_HOSTS_0__MAX_CONTAINERS",
            host.max_containers.to_string(),
        ),
        // Game servers reach the platform by another address than players do.
        ("OMGSERVERS_RUNTIMES_OVERRIDING_ENABLED", "true".to_owned()),
        ("OMGSERVERS_RUNTIMES_OVERRIDING_URI", host.platform_uri(up.port)),
        ("OMGSERVERS_IMAGE_FILES_ENABLED", "true".to_owned()),
        // Nothing is left behind but the data folder.
        ("OMGSERVERS_RUNTIMES_STOP_AT_EXIT", "true".to_owned()),
    ];
    // Whoever runs this for others says how they reach it.
    if std::env::var_os(SERVER_URI).is_none_or(|uri| uri.is_empty()) {
        environment.push((SERVER_URI, format!("http://localhost:{}", up.port)));
    }
    if let Some(web) = &up.web {
        let found = std::fs::canonicalize(web)
            .ok()
            .filter(|web| web.join("index.html").is_file());
        let web = found.ok_or_else(|| Failure::usage(format!("there is no index.html in `{}`", web.display())))?;
        environment.push(("OMGSERVERS_WEB_DIRECTORY", text(&web)?));
    }
    Ok(environment)
}

fn dispatcher_environment(up: &Up, secrets: &Secrets) -> Vec<(&'static str, String)> {
    vec![
        ("OMGSERVERS_HTTP_PORT", up.port.to_string()),
        ("OMGSERVERS_MANAGEMENT_PORT", up.management_port.to_string()),
        (
            "OMGSERVERS_SERVICE_URI",
            format!("http://127.0.0.1:{}", up.service_port),
        ),
        ("OMGSERVERS_DISPATCHER_USER_PASSWORD", secrets.dispatcher.clone()),
    ]
}

fn programs(up: &Up) -> Result<PathBuf> {
    if let Some(programs) = &up.programs {
        return Ok(programs.clone());
    }
    let own = std::env::current_exe().context("cannot find out where omgctl itself is")?;
    let folder = own.parent().context("omgctl is in no folder")?;
    Ok(folder.to_owned())
}

/// Says at once what a part would otherwise say into its log.
pub(super) fn check_ports(up: &Up) -> Result {
    let ports = [
        ("--port", up.port, Ipv4Addr::UNSPECIFIED),
        ("--management-port", up.management_port, Ipv4Addr::LOCALHOST),
        ("--service-port", up.service_port, Ipv4Addr::LOCALHOST),
        (
            "--service-management-port",
            up.service_management_port,
            Ipv4Addr::LOCALHOST,
        ),
    ];
    // All are held until the last is checked, so that the same number twice is found too.
    let mut held = Vec::new();
    for (option, port, address) in ports {
        match TcpListener::bind((address, port)) {
            Ok(listener) => held.push(listener),
            Err(cause) => {
                let failure = Failure::refused(format!("port {port} cannot be used: {cause}"));
                return Err(failure.hint(format!("{option} chooses another one")));
            }
        }
    }
    Ok(())
}
