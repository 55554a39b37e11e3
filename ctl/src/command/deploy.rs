//! `developer deploy`: from a config and an image to players, in one command.

use std::time::Duration;

use omgservers_protocol::config::DeploymentConfig;
use omgservers_protocol::developer::{CreateImage, CreateVersion, DeployVersion, GetDeploymentDetails, ImageQualifier};
use serde_json::json;

use super::developer::check_image;
use crate::arguments::Stage;
use crate::arguments::developer::Deploy;
use crate::context::{Context, Role};
use crate::failure::{Failure, Result};
use crate::state::shell_word;
use crate::{first_lobby, input};

const ROLE: Role = Role::Developer;

pub(super) async fn run(context: &mut Context, deploy: Deploy) -> Result {
    let output = context.output;
    let Stage { tenant, project, stage } = deploy.of;
    // Everything that can be wrong here is looked at before anything is made there.
    let version_config = input::version_config(&deploy.config, output)?;
    let config: Option<DeploymentConfig> = match &deploy.deployment_config {
        Some(file) => Some(input::config(file, output)?),
        None => None,
    };
    if let (Some(config), Some(file)) = (&config, &deploy.deployment_config) {
        let wrong = |wrong| Failure::usage(format!("`{}`: {wrong}", file.display()));
        config.check(&version_config).map_err(wrong)?;
    }
    check_image(&deploy.image)?;
    let starts_lobbies = config.as_ref().is_none_or(|config| config.min_lobbies > 0);

    let call = CreateVersion {
        tenant: tenant.clone(),
        project: project.clone(),
        config: version_config,
    };
    let version = context.send(ROLE, &call).await?.version_id;
    context.state.set([("VERSION", version.to_string())])?;
    let call = CreateImage {
        tenant: tenant.clone(),
        project: project.clone(),
        version,
        qualifier: ImageQualifier::Universal,
        image: deploy.image,
    };
    context.send(ROLE, &call).await?;
    let call = DeployVersion {
        tenant: tenant.clone(),
        project: project.clone(),
        stage: stage.clone(),
        version_id: version,
        config,
    };
    let deployment = context.send(ROLE, &call).await?.deployment_id;
    context.state.set([("DEPLOYMENT", deployment.to_string())])?;
    // Told now, so that the numbers are known whatever comes of the first lobby.
    output.result(&json!({"version_id": version, "deployment_id": deployment}), |_| {
        format!("Version {version} is deployed to {tenant}/{project}/{stage} as deployment {deployment}.")
    });
    if deploy.no_wait || !starts_lobbies {
        return Ok(());
    }

    let call = GetDeploymentDetails {
        tenant: tenant.clone(),
        deployment_id: deployment,
    };
    let ask = async || Ok(context.send(ROLE, &call).await?.details.venues);
    match first_lobby::wait(Duration::from_secs(deploy.wait), output, ask).await? {
        Ok(()) => {
            output.note("A lobby is open.");
            Ok(())
        }
        Err(told) => {
            let why = if told.is_empty() { "none is there yet" } else { &told };
            let failure = Failure::refused(format!("no lobby is open after {} s: {why}", deploy.wait));
            let tenant = shell_word(tenant.as_str());
            Err(failure.hint(format!(
                "the platform goes on trying; `omgctl developer getDeploymentDetails {tenant} {deployment}` tells more"
            )))
        }
    }
}
