//! `omgctl up`: starts the parts of an installation on this machine, restarts what dies and stops them in reverse.

mod deploy;
pub(crate) mod down;
mod folder;
mod host;
mod log;
mod part;
mod plan;
mod sweep;

use std::path::PathBuf;

use clap::Args;
use omgservers_protocol::text::Text;
use serde_json::json;

use self::deploy::{Deployed, Game};
pub(crate) use self::down::Down;
use self::folder::{Folder, Secrets};
use self::part::Supervised;
use crate::context::Role;
use crate::failure::{Failure, Result};
use crate::input;
use crate::output::Output;
use crate::signals::Signals;

/// Where everything is kept unless something else is said.
pub(crate) const DATA_DIRECTORY: &str = ".omgservers";

#[derive(Args)]
pub(crate) struct Up {
    /// Where everything is kept: the database, secrets, logs
    #[arg(long, value_name = "DIR", default_value = DATA_DIRECTORY)]
    data: PathBuf,

    /// The public port, on all addresses
    #[arg(long, default_value_t = 8080)]
    port: u16,

    /// Health and metrics of the dispatcher, on loopback
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    management_port: u16,

    /// The service behind the dispatcher, on loopback
    #[arg(long, value_name = "PORT", default_value_t = 8081)]
    service_port: u16,

    /// Health and metrics of the service, on loopback
    #[arg(long, value_name = "PORT", default_value_t = 8001)]
    service_management_port: u16,

    /// Password of the user admin, fixed at the first start; `-` reads it from stdin [default: admin]
    #[arg(long, value_name = "PASSWORD")]
    admin_password: Option<String>,

    /// Password of the user support, likewise; later the one to deploy a game by, should it have changed [default: support]
    #[arg(long, value_name = "PASSWORD")]
    support_password: Option<String>,

    /// Where game servers run: auto, docker, process, or the address of a Docker engine
    ///
    /// auto takes Docker where it answers, else processes of this machine without any isolation.
    #[arg(long, default_value = "auto")]
    host: String,

    /// Files of the browser client, served under /play
    #[arg(long, value_name = "DIR")]
    web: Option<PathBuf>,

    /// Where the programs omgservers-service and omgservers-dispatcher are [default: beside omgctl]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,

    #[command(flatten)]
    deploy: Deploy,
}

/// A game that should run once everything is up.
#[derive(Args)]
#[command(next_help_heading = "Game to deploy")]
struct Deploy {
    /// Folder of a game: version.json, deployment.json if there is one, image.tar unless given otherwise
    #[arg(long, value_name = "DIR")]
    deploy: Option<PathBuf>,

    /// Archive of its image, as `omgctl image pack` and `docker save` write it
    #[arg(long, value_name = "FILE")]
    deploy_image: Option<PathBuf>,

    /// Config of its version
    #[arg(long, value_name = "FILE")]
    deploy_version: Option<PathBuf>,

    /// Config of its deployment
    #[arg(long, value_name = "FILE")]
    deploy_config: Option<PathBuf>,

    #[arg(long, default_value = "demo")]
    tenant: String,

    #[arg(long, default_value = "shooter")]
    project: String,

    #[arg(long, default_value = "prod")]
    stage: String,
}

impl Deploy {
    /// The files and names, or nothing when no game was asked for.
    fn game(&self) -> Result<Option<Game>> {
        let inside = |name: &str| self.deploy.as_ref().map(|folder| folder.join(name));
        let image = self.deploy_image.clone().or_else(|| inside("image.tar"));
        let version = self.deploy_version.clone().or_else(|| inside("version.json"));
        let config = self
            .deploy_config
            .clone()
            .or_else(|| inside("deployment.json").filter(|file| file.exists()));
        let (image, version) = match (image, version) {
            (Some(image), Some(version)) => (image, version),
            (None, None) if config.is_none() => return Ok(None),
            (None, _) => return Err(Failure::usage("--deploy-image is missing")),
            (_, None) => return Err(Failure::usage("--deploy-version is missing")),
        };
        let name = |name: &str| Text::new(name).ok_or_else(|| Failure::usage(format!("`{name}` is not a name")));
        Ok(Some(Game {
            image,
            version,
            config,
            tenant: name(&self.tenant)?,
            project: name(&self.project)?,
            stage: name(&self.stage)?,
        }))
    }
}

pub(crate) async fn run(output: Output, up: Up) -> Result {
    let game = up.deploy.game()?;
    let game = game.map(|game| game.read(output)).transpose()?;
    let password = |given: &Option<String>| given.as_deref().map(input::password).transpose();
    let (admin_password, support_password) = (password(&up.admin_password)?, password(&up.support_password)?);
    let mut signals = Signals::listen()?;
    let folder = Folder::open(&up.data)?;
    folder.stop_leftovers(output).await;
    let mut secrets = Secrets::load(&folder, admin_password, support_password, game.is_some())?;
    let host = host::choose(&up.host, folder.path()).await?;
    plan::check_ports(&up)?;
    let [service, dispatcher] = plan::parts(&up, &folder, &secrets, &host)?;
    // From here on the database is told.
    secrets.store()?;

    let mut running = Vec::new();
    let result = async {
        for part in [service, dispatcher] {
            running.push(Supervised::start(part, output));
            let Some(part) = running.last_mut() else {
                unreachable!("it was just pushed")
            };
            tokio::select! {
                ready = part.ready() => ready?,
                () = signals.next() => return Ok(()),
            }
        }
        let address = format!("http://localhost:{}", up.port);
        let deployed = match &game {
            Some(game) => tokio::select! {
                deployed = deploy::deploy(&folder, &mut secrets, &address, game, output) => deployed?,
                () = signals.next() => return Ok(()),
            },
            None => None,
        };
        let open = tokio::select! {
            open = deploy::development_logins(&address, &secrets) => open,
            () = signals.next() => return Ok(()),
        };
        print_banner(output, &up, &folder, &open, &host, deployed.as_ref());
        signals.next().await;
        Ok(())
    }
    .await;
    if result.is_ok() {
        output.note("Stopping…");
    }
    for part in running.into_iter().rev() {
        part.stop().await;
    }
    sweep::sweep(folder.path(), output).await;
    result
}

fn print_banner(
    output: Output,
    up: &Up,
    folder: &Folder,
    open: &[Role],
    host: &host::Host,
    deployed: Option<&Deployed>,
) {
    let address = format!("http://localhost:{}", up.port);
    let play = up.web.as_ref().map(|_| format!("{address}/play/"));
    let value = json!({
        "address": address,
        "play": play,
        "host": host.uri,
        "data": folder.path(),
        "version_id": deployed.map(|deployed| deployed.version),
        "deployment_id": deployed.map(|deployed| deployed.deployment),
    });
    output.result(&value, |_| {
        let mut lines = vec!["\nOMGSERVERS is running.\n".to_owned()];
        let mut line = |title: &str, text: String| lines.push(format!("  {title:<9} {text}"));
        if let Some(play) = play {
            line("Play", play);
        }
        line("Address", address.clone());
        if let Some(deployed) = deployed {
            line("Game", deployed.to_string());
        }
        line("Host", host.to_string());
        line("Data", format!("{} (logs in logs/)", folder.path().display()));
        if open.len() < 2 {
            let here = format!("omgctl environment useEnvironment here {address}");
            line(
                "Log in",
                format!("{here}, then omgctl support useCredentials support -"),
            );
        } else if up.port == 8080 {
            line("Log in", "omgctl environment useLocal".to_owned());
        } else {
            line("Log in", format!("omgctl environment useLocal --port {}", up.port));
        }
        lines.push("\nCtrl-C stops it, the data stay.".to_owned());
        lines.join("\n")
    });
    if let [first, ..] = open {
        let who: Vec<_> = open.iter().map(|role| role.name()).collect();
        output.warning(format_args!(
            "{} can log in by the passwords of development, and port {} is open on all addresses; \
             --admin-password and --support-password choose others at the first start, `omgctl {first} changePassword` later",
            who.join(" and "),
            up.port
        ));
    }
}
