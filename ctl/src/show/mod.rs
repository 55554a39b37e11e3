//! Replies of the service as people like to read them, and what of them scripts read later.

mod details;
mod rows;

use omgservers_protocol::admin::{BcryptedHash, CalculatedShard, GeneratedId, PingedDockerHost};
use omgservers_protocol::audit::TenantQuotas;
use omgservers_protocol::call::Page;
use omgservers_protocol::developer::{
    CreatedDeployment, CreatedStage, CreatedVersion, ReadDeploymentConfig, ReadVersionConfig, UploadedFilesArchive,
};
use omgservers_protocol::support::{CreatedProject, CreatedTenant};
use serde::Serialize;

use crate::table::{self, Row};

pub(crate) trait Reply: Serialize {
    /// Names without the prefix.
    fn variables(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn text(&self) -> String;
}

impl<R: Row + Serialize> Reply for Page<R> {
    fn text(&self) -> String {
        table::of(&self.items)
    }
}

/// Replies with an id: where it is stored, and the sentence that tells it.
macro_rules! created {
    ($($reply:ty { $($variable:literal = $field:ident),* } $sentence:literal;)*) => {$(
        impl Reply for $reply {
            fn variables(&self) -> Vec<(&'static str, String)> {
                vec![$(($variable, self.$field.to_string())),*]
            }

            fn text(&self) -> String {
                format!($sentence, $($field = self.$field),*)
            }
        }
    )*};
}

created! {
    CreatedTenant { "TENANT" = id } "Tenant {id} was created.";
    CreatedProject { "PROJECT" = project_id, "STAGE" = stage_id } "Project {project_id} was created with stage {stage_id}.";
    CreatedStage { "STAGE" = stage_id } "Stage {stage_id} was created.";
    CreatedVersion { "VERSION" = version_id } "Version {version_id} was created.";
    CreatedDeployment { "DEPLOYMENT" = deployment_id } "Deployment {deployment_id} was created.";
    UploadedFilesArchive { "FILES_ARCHIVE" = files_archive_id } "Files archive {files_archive_id} was uploaded.";
    GeneratedId { "GENERATED_ID" = id } "{id}";
    BcryptedHash { "BCRYPTED_HASH" = hash } "{hash}";
    CalculatedShard { "SHARD_INDEX" = shard_index, "SERVER_URI" = server_uri } "Shard {shard_index}, served at {server_uri}.";
}

impl Reply for PingedDockerHost {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("SUCCESSFUL", self.successful.to_string())]
    }

    fn text(&self) -> String {
        let answers = if self.successful { "answers" } else { "does not answer" };
        format!("The engine {answers} {}.", self.from_server)
    }
}

impl Reply for TenantQuotas {
    fn text(&self) -> String {
        let (may, has) = (&self.quotas, &self.in_use);
        let rows = [
            ("runtimes", may.runtimes, has.runtimes),
            ("cpu, hundredths of a core", may.cpu, has.cpu),
            ("memory, MB", may.memory, has.memory),
            ("players", may.players, has.players),
        ];
        let rows = rows.map(|(what, quota, in_use)| {
            let quota = quota.map_or("no limit".to_owned(), |quota| quota.to_string());
            vec![what.to_owned(), quota, in_use.to_string()]
        });
        table::table("Quotas", &["OF", "QUOTA", "IN USE"], rows.to_vec())
    }
}

impl Reply for ReadVersionConfig {
    fn text(&self) -> String {
        document(&self.config)
    }
}

impl Reply for ReadDeploymentConfig {
    fn text(&self) -> String {
        document(&self.config)
    }
}

/// As a file that createVersion or deployVersion takes.
fn document(config: &impl Serialize) -> String {
    crate::json::pretty(&serde_json::to_string(config).expect("a config is plain data"))
}
