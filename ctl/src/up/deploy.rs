//! Brings a game onto the installation: tenant, project, stage and developer once, a version and a deployment whenever
//! its files have changed. Doing it again changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use omgservers_protocol::config::{DeploymentConfig, VersionConfig};
use omgservers_protocol::developer::{
    CreateImage, CreateProject, CreateProjectAlias, CreateStage, CreateStageAlias, CreateToken, CreateVersion,
    DeployVersion, GetDeploymentDetails, GetProjectDetails, GetStageDetails, GetTenantDetails, ImageQualifier,
};
use omgservers_protocol::id::{DeploymentId, StageId, VersionId};
use omgservers_protocol::support::{
    self, CreateDeveloper, CreateTenant, CreateTenantAlias, CreateTenantPermissions, TenantPermission,
};
use omgservers_protocol::text::Text;
use omgservers_protocol::{Call, admin};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::folder::{Developer, Folder, Secrets};
use crate::context::Role;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::state::write_private_file;
use crate::{first_lobby, input};
use omgservers_protocol::client::{CallError, Client};

/// How long the installation may be deaf, for example because a part is being restarted.
const DEAF_MAX: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(250);

/// A game by its files and the names that it gets.
pub(super) struct Game {
    pub(super) image: PathBuf,
    pub(super) version: PathBuf,
    pub(super) config: Option<PathBuf>,
    pub(super) tenant: Text,
    pub(super) project: Text,
    pub(super) stage: Text,
}

/// A game with its files read.
pub(super) struct LoadedGame {
    game: Game,
    archive: Vec<u8>,
    version: VersionConfig,
    config: Option<DeploymentConfig>,
    /// Of the image and both configs.
    digest: String,
}

impl Game {
    /// Reads and checks the files, so that a mistake in them is told before anything is started.
    pub(super) fn read(self, output: Output) -> Result<LoadedGame> {
        let image = &self.image;
        let archive = std::fs::read(image)
            .map_err(|cause| Failure::usage(format!("cannot read `{}`: {cause}", image.display())))?;
        let version: VersionConfig = input::config(&self.version, output)?;
        version
            .check()
            .map_err(|wrong| Failure::usage(format!("`{}`: {wrong}", self.version.display())))?;
        let config: Option<DeploymentConfig> = match &self.config {
            Some(file) => Some(input::config(file, output)?),
            None => None,
        };
        if let (Some(config), Some(file)) = (&config, &self.config) {
            config
                .check(&version)
                .map_err(|wrong| Failure::usage(format!("`{}`: {wrong}", file.display())))?;
        }
        let mut digest = Sha256::new_with_prefix(Sha256::digest(&archive));
        digest.update(serde_json::to_vec(&version).context("a config is plain data")?);
        digest.update(serde_json::to_vec(&config).context("a config is plain data")?);
        let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(LoadedGame {
            game: self,
            archive,
            version,
            config,
            digest,
        })
    }
}

/// What runs now.
pub(super) struct Deployed {
    name: String,
    pub(super) version: VersionId,
    pub(super) deployment: DeploymentId,
}

impl fmt::Display for Deployed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, version {}, deployment {}",
            self.name, self.version, self.deployment
        )
    }
}

/// What was deployed the last time; kept in the data folder for every game.
#[derive(Serialize, Deserialize)]
struct Record {
    digest: String,
    version: VersionId,
    deployment: DeploymentId,
    image: PathBuf,
}

pub(super) async fn deploy(
    folder: &Folder,
    secrets: &mut Secrets,
    url: &str,
    loaded: &LoadedGame,
    output: Output,
) -> Result<Option<Deployed>> {
    let game = &loaded.game;
    let name = format!("{}/{}/{}", game.tenant, game.project, game.stage);
    let records_file = folder.path().join("deployments");
    let mut records = read_records(&records_file)?;

    let Some(installation) = Installation::log_in(url, secrets).await? else {
        output.warning(format_args!(
            "support has another password by now, so {name} is not deployed; start again with --support-password PASSWORD"
        ));
        return Ok(None);
    };
    installation.provide_tenant(&game.tenant).await?;
    let stage = installation.provide_stage(game).await?;
    let current = installation.current(game, records.get(&name)).await?;
    let old = records.get(&name).map(|record| (record.digest.clone(), record.version));
    let (version, deployment) = match (current, old) {
        (Some(deployment), Some((digest, version))) if digest == loaded.digest => {
            output.note(format_args!("{name} is deployed already"));
            (version, deployment)
        }
        _ => {
            output.note(format_args!("deploying {name}…"));
            let image = folder.path().join("archives").join(format!("{}.tar", loaded.digest));
            std::fs::write(&image, &loaded.archive).with_context(|| format!("cannot write `{}`", image.display()))?;
            let (version, deployment) = installation.deploy(loaded, stage, &image).await?;
            let record = Record {
                digest: loaded.digest.clone(),
                version,
                deployment,
                image,
            };
            records.insert(name.clone(), record);
            write_records(&records_file, &records)?;
            // The installation itself retires the deployment that this one replaces.
            delete_other_images(folder, &records);
            (version, deployment)
        }
    };
    if loaded.config.as_ref().is_none_or(|config| config.min_lobbies > 0) {
        installation.wait_for_lobby(&game.tenant, deployment, output).await?;
    }
    Ok(Some(Deployed {
        name,
        version,
        deployment,
    }))
}

/// Who can log in by the password that everybody knows.
pub(super) async fn development_logins(url: &str, secrets: &Secrets) -> Vec<Role> {
    let mut open = Vec::new();
    for (role, password) in [(Role::Admin, &secrets.admin), (Role::Support, &secrets.support)] {
        if password == role.name() && !is_refused(url, role).await {
            open.push(role);
        }
    }
    open
}

/// Whether the name of a role is no longer its password.
async fn is_refused(url: &str, role: Role) -> bool {
    let (Ok(client), Some(word)) = (Client::new(url), Text::new(role.name())) else {
        return false;
    };
    let (user, password) = (word.clone(), word);
    let answer = match role {
        Role::Admin => client.send(&admin::CreateToken { user, password }).await,
        _ => client.send(&support::CreateToken { user, password }).await,
    };
    answer.is_err_and(|cause| cause.status() == Some(401))
}

/// The way to the installation, as support and as the developer of the game.
struct Installation {
    support: Client,
    developer: Client,
    user: Developer,
}

impl Installation {
    /// `None` when support has another password.
    async fn log_in(url: &str, secrets: &mut Secrets) -> Result<Option<Self>> {
        let client = Client::new(url).map_err(failed("reach the installation"))?;
        let password = match &secrets.support_login {
            Some(given) => given.clone(),
            None => text(&secrets.support)?,
        };
        let call = support::CreateToken {
            user: text("support")?,
            password,
        };
        let token = match send(&client, &call).await {
            Err(refused) if refused.status() == Some(401) => return Ok(None),
            answer => answer.map_err(failed("log in as support"))?,
        };
        if let Some(given) = secrets.support_login.take() {
            secrets.support = given.to_string();
            secrets.store()?;
        }
        let support = client.with_token(token.raw_token);
        // The stored developer is gone when the database was begun anew.
        let stored = match &secrets.developer {
            Some(user) => log_in_developer(&client, user)
                .await?
                .map(|developer| (user.clone(), developer)),
            None => None,
        };
        let (user, developer) = match stored {
            Some(stored) => stored,
            None => {
                let created = send(&support, &CreateDeveloper {})
                    .await
                    .map_err(failed("create a developer"))?;
                let user = Developer {
                    user_id: created.user_id,
                    password: created.password,
                };
                secrets.developer = Some(user.clone());
                secrets.store()?;
                let developer = log_in_developer(&client, &user).await?;
                (
                    user,
                    developer.ok_or_else(|| Failure::refused("the developer that was just created cannot log in"))?,
                )
            }
        };
        Ok(Some(Self {
            support,
            developer,
            user,
        }))
    }

    async fn developer<C: Call>(&self, call: &C) -> Result<C::Reply> {
        send(&self.developer, call).await.map_err(failed("deploy the game"))
    }

    async fn provide_tenant(&self, tenant: &Text) -> Result {
        let call = GetTenantDetails { tenant: tenant.clone() };
        match send(&self.developer, &call).await {
            Ok(_) => return Ok(()),
            Err(refused) if refused.status() == Some(404) => {
                let created = send(&self.support, &CreateTenant {})
                    .await
                    .map_err(failed("create the tenant"))?;
                let call = CreateTenantAlias {
                    tenant_id: created.id,
                    alias: tenant.clone(),
                };
                send(&self.support, &call).await.map_err(failed("name the tenant"))?;
            }
            // It is there, but was made for another developer.
            Err(refused) if refused.status() == Some(403) => {}
            Err(cause) => return Err(failed("look at the tenant")(cause)),
        }
        let call = CreateTenantPermissions {
            tenant: tenant.clone(),
            user_id: self.user.user_id,
            permissions_to_create: vec![TenantPermission::ProjectManager, TenantPermission::TenantViewer],
        };
        send(&self.support, &call).await.map_err(failed("grant permissions"))?;
        Ok(())
    }

    /// Project and stage with their names, as far as they are missing.
    async fn provide_stage(&self, game: &Game) -> Result<StageId> {
        let (tenant, project, stage) = (game.tenant.clone(), game.project.clone(), game.stage.clone());
        let call = GetStageDetails {
            tenant: tenant.clone(),
            project: project.clone(),
            stage: stage.clone(),
        };
        match send(&self.developer, &call).await {
            Ok(found) => return Ok(found.details.stage.id),
            Err(refused) if refused.status() == Some(404) => {}
            Err(cause) => return Err(failed("look at the stage")(cause)),
        }
        let call = GetProjectDetails {
            tenant: tenant.clone(),
            project: project.clone(),
        };
        let nameless = match send(&self.developer, &call).await {
            Ok(found) => found
                .details
                .stages
                .into_iter()
                .find(|stage| stage.aliases.is_empty())
                .map(|stage| stage.id),
            Err(refused) if refused.status() == Some(404) => {
                let created = self.developer(&CreateProject { tenant: tenant.clone() }).await?;
                let call = CreateProjectAlias {
                    tenant: tenant.clone(),
                    project_id: created.project_id,
                    alias: project.clone(),
                };
                self.developer(&call).await?;
                Some(created.stage_id)
            }
            Err(cause) => return Err(failed("look at the project")(cause)),
        };
        let stage_id = match nameless {
            Some(stage_id) => stage_id,
            None => {
                let call = CreateStage {
                    tenant: tenant.clone(),
                    project,
                };
                self.developer(&call).await?.stage_id
            }
        };
        let call = CreateStageAlias {
            tenant,
            stage_id,
            alias: stage,
        };
        self.developer(&call).await?;
        Ok(stage_id)
    }

    /// The recorded deployment, if it is still there.
    async fn current(&self, game: &Game, record: Option<&Record>) -> Result<Option<DeploymentId>> {
        let Some(record) = record else { return Ok(None) };
        let call = GetStageDetails {
            tenant: game.tenant.clone(),
            project: game.project.clone(),
            stage: game.stage.clone(),
        };
        let stage = self.developer(&call).await?.details;
        Ok(stage
            .deployments
            .iter()
            .map(|row| row.id)
            .find(|id| *id == record.deployment))
    }

    async fn deploy(&self, loaded: &LoadedGame, stage: StageId, image: &Path) -> Result<(VersionId, DeploymentId)> {
        let (tenant, project) = (loaded.game.tenant.clone(), loaded.game.project.clone());
        let call = CreateVersion {
            tenant: tenant.clone(),
            project: project.clone(),
            config: loaded.version.clone(),
        };
        let version = self.developer(&call).await?.version_id;
        let call = CreateImage {
            tenant: tenant.clone(),
            project: project.clone(),
            version,
            qualifier: ImageQualifier::Universal,
            image: format!("file://{}", image.display()),
        };
        self.developer(&call).await?;
        let call = DeployVersion {
            tenant,
            project,
            stage: text(&stage.to_string())?,
            version_id: version,
            config: loaded.config.clone(),
        };
        Ok((version, self.developer(&call).await?.deployment_id))
    }

    /// Tells how the first lobby comes up. One that takes long or fails is worth a warning; the platform goes on trying.
    async fn wait_for_lobby(&self, tenant: &Text, deployment: DeploymentId, output: Output) -> Result {
        let call = GetDeploymentDetails {
            tenant: tenant.clone(),
            deployment_id: deployment,
        };
        let ask = async || Ok(self.developer(&call).await?.details.venues);
        if first_lobby::wait(first_lobby::WITHIN, output, ask).await?.is_err() {
            output.warning(format_args!(
                "no lobby is ready after {} s; `omgctl developer getDeploymentDetails {tenant} {deployment}` tells more",
                first_lobby::WITHIN.as_secs()
            ));
        }
        Ok(())
    }
}

/// `None` when the user is unknown there.
async fn log_in_developer(client: &Client, user: &Developer) -> Result<Option<Client>> {
    let call = CreateToken {
        user_id: text(&user.user_id.to_string())?,
        password: text(&user.password)?,
    };
    match send(client, &call).await {
        Ok(token) => Ok(Some(client.with_token(token.raw_token))),
        Err(refused) if matches!(refused.status(), Some(401 | 404)) => Ok(None),
        Err(cause) => Err(failed("log in as developer")(cause)),
    }
}

/// Asks again while nobody answers, for a while.
async fn send<C: Call>(client: &Client, call: &C) -> std::result::Result<C::Reply, CallError> {
    let deadline = Instant::now() + DEAF_MAX;
    loop {
        match client.send(call).await {
            Err(cause) if matches!(cause.status(), None | Some(502..=504)) && Instant::now() < deadline => {
                tokio::time::sleep(POLL).await;
            }
            answer => return answer,
        }
    }
}

fn failed(what: &str) -> impl Fn(CallError) -> Failure {
    move |cause| {
        let failure = Failure::refused(format!("cannot {what}: {cause}"));
        match cause.status() {
            Some(403) => failure.hint("it may belong to another developer: choose another --project, or begin anew after `omgctl down --wipe`"),
            _ => failure,
        }
    }
}

fn text(value: &str) -> Result<Text> {
    Text::new(value).ok_or_else(|| Failure::refused("a stored secret is blank or longer than 64 characters"))
}

fn read_records(file: &Path) -> Result<BTreeMap<String, Record>> {
    match std::fs::read(file) {
        Ok(content) => Ok(serde_json::from_slice(&content).with_context(|| format!("`{}` is broken", file.display()))?),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(cause) => Err(anyhow::Error::new(cause)
            .context(format!("cannot read `{}`", file.display()))
            .into()),
    }
}

fn write_records(file: &Path, records: &BTreeMap<String, Record>) -> Result {
    let content = serde_json::to_vec_pretty(records).context("records are plain data")?;
    write_private_file(file, &content).with_context(|| format!("cannot write `{}`", file.display()))?;
    Ok(())
}

/// Images of deployments that are no more.
fn delete_other_images(folder: &Folder, records: &BTreeMap<String, Record>) {
    let files = std::fs::read_dir(folder.path().join("archives"))
        .into_iter()
        .flatten()
        .flatten();
    for file in files.map(|entry| entry.path()) {
        if !records.values().any(|record| record.image == file) {
            let _ = std::fs::remove_file(file);
        }
    }
}
