//! Versions of a game and their images.

use omgservers_protocol::call::{Created, Deleted};
use omgservers_protocol::config::VersionConfig;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{ImageId, ProjectId, TenantId, VersionId};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::auth::Developer;
use crate::entity::alias;
use crate::entity::tenant::{self, On};
use crate::entity::timestamp;
use crate::error::{Error, Result};

/// Longest reference of an image.
const IMAGE_MAX: usize = 512;

pub async fn create(app: &App, by: &Developer, call: dev::CreateVersion) -> Result<dev::CreatedVersion> {
    call.config.check().map_err(Error::Invalid)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    tenant::require(&mut tx, by, On::Project(project), "VERSION_MANAGER").await?;
    tenant::alive_project(&mut tx, tenant, project).await?;
    let version_id: VersionId = app.ids.mint();
    sqlx::query("insert into version (id, tenant_id, project_id, config) values ($1, $2, $3, $4::text::json)")
        .bind(version_id)
        .bind(tenant)
        .bind(project)
        .bind(to_text(&call.config))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(dev::CreatedVersion { version_id })
}

/// A document of ours as the text that the database keeps.
pub(super) fn to_text(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("documents are plain data")
}

/// The project, config and creation time of a version, deleted or not.
pub(super) async fn find(
    db: &mut PgConnection,
    tenant: TenantId,
    id: VersionId,
) -> Result<(ProjectId, VersionConfig, OffsetDateTime, bool)> {
    let (project, config, created, deleted): (ProjectId, String, OffsetDateTime, bool) = sqlx::query_as(
        "select project_id, config::text, created, deleted is not null from version where tenant_id = $1 and id = $2",
    )
    .bind(tenant)
    .bind(id)
    .fetch_optional(db)
    .await?
    .ok_or_else(|| Error::not_found("version", id))?;
    let config = serde_json::from_str(&config).map_err(|cause| anyhow::anyhow!("config of version `{id}`: {cause}"))?;
    Ok((project, config, created, deleted))
}

pub async fn create_image(app: &App, by: &Developer, call: dev::CreateImage) -> Result<Created> {
    check_reference(&call.image, app.config.image_files_enabled)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let (project, _, _, deleted) = find(&mut tx, tenant, call.version).await?;
    tenant::require(&mut tx, by, On::Project(project), "VERSION_MANAGER").await?;
    if project != named {
        return Err(Error::not_found("version", call.version));
    }
    if deleted {
        return Err(Error::parent("version", call.version));
    }
    let done = sqlx::query(
        "insert into image (id, tenant_id, version_id, qualifier, image) values ($1, $2, $3, $4, $5) \
         on conflict on constraint image_once do update set image = excluded.image where image.image <> excluded.image",
    )
    .bind(app.ids.mint::<ImageId>())
    .bind(tenant)
    .bind(call.version)
    .bind(call.qualifier.as_str())
    .bind(&call.image)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(Created {
        created: done.rows_affected() > 0,
    })
}

/// A name that Docker would take, or an archive on this machine's disk.
fn check_reference(image: &str, files_enabled: bool) -> Result<()> {
    if image.is_empty() || image.len() > IMAGE_MAX {
        return Err(Error::Invalid(format!(
            "image must be 1 to {IMAGE_MAX} characters long"
        )));
    }
    if let Some(path) = image.strip_prefix("file://") {
        if !files_enabled {
            return Err(Error::Invalid(
                "images from files are switched off here (OMGSERVERS_IMAGE_FILES_ENABLED)".into(),
            ));
        }
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(Error::Invalid(
                "an image file is named by its absolute path: file:///…tar".into(),
            ));
        }
        return Ok(());
    }
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/:@".contains(letter);
    if !image.chars().all(is_plain) || image.starts_with(['-', '.', '/', ':', '@']) {
        return Err(Error::Invalid(format!("`{image}` is not the name of an image")));
    }
    Ok(())
}

/// The image for each kind of runtime: lobby and match.
pub(super) async fn images(db: &mut PgConnection, version: VersionId) -> Result<(Option<String>, Option<String>)> {
    let rows: Vec<(String, String)> = sqlx::query_as("select qualifier, image from image where version_id = $1")
        .bind(version)
        .fetch_all(db)
        .await?;
    let find = |wanted: &str| {
        let of = |qualifier: &str| {
            rows.iter()
                .find(|(name, _)| name == qualifier)
                .map(|(_, image)| image.clone())
        };
        of("UNIVERSAL").or_else(|| of(wanted))
    };
    Ok((find("LOBBY"), find("MATCH")))
}

pub async fn details(app: &App, by: &Developer, call: dev::GetVersionDetails) -> Result<dev::VersionDetails> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let (project, _, created, _) = find(&mut tx, tenant, call.version_id).await?;
    tenant::require(&mut tx, by, On::Project(project), "PROJECT_VIEWER").await?;
    let rows: Vec<(ImageId, OffsetDateTime, String, String)> =
        sqlx::query_as("select id, created, qualifier, image from image where version_id = $1 order by id")
            .bind(call.version_id)
            .fetch_all(&mut *tx)
            .await?;
    Ok(dev::VersionDetails {
        version: dev::Version {
            id: call.version_id,
            tenant_id: tenant,
            project_id: project,
            created: timestamp(created),
        },
        build_requests: Vec::new(),
        images: rows
            .into_iter()
            .map(|(id, created, qualifier, image_id)| dev::Image {
                id,
                tenant_id: tenant,
                version_id: call.version_id,
                created: timestamp(created),
                qualifier,
                image_id,
            })
            .collect(),
    })
}

pub async fn delete(app: &App, by: &Developer, call: dev::DeleteVersion) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let (project, ..) = find(&mut tx, tenant, call.id).await?;
    tenant::require(&mut tx, by, On::Project(project), "VERSION_MANAGER").await?;
    let done = sqlx::query("update version set deleted = now() where tenant_id = $1 and id = $2 and deleted is null")
        .bind(tenant)
        .bind(call.id)
        .execute(&mut *tx)
        .await?;
    tenant::finish_delete(tx, tenant, done.rows_affected()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_names_or_where_allowed_absolute_paths() {
        for good in [
            "shooter:1",
            "localhost:5000/omgservers/1/2/universal:4",
            "a@sha256:00ff",
        ] {
            assert!(check_reference(good, false).is_ok(), "{good}");
        }
        assert!(check_reference("file:///srv/shooter.tar", true).is_ok());
        for bad in [
            "",
            "-v",
            "a b",
            "file:///srv/shooter.tar",
            "../x",
            "a;b",
            &"x".repeat(513),
        ] {
            assert!(check_reference(bad, false).is_err(), "{bad}");
        }
        assert!(check_reference("file://shooter.tar", true).is_err());
        assert!(check_reference("file:///srv/../etc/x.tar", true).is_err());
    }
}
