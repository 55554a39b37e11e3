//! Versions of a game and their images.

use omgservers_protocol::call::{Created, Deleted, Page, Paging};
use omgservers_protocol::config::VersionConfig;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{ImageId, ProjectId, TenantId, VersionId};
use omgservers_protocol::text::Text;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::App;
use crate::db::Tx;
use crate::entity::page::Window;
use crate::entity::permission::{On, Permission, require};
use crate::entity::{alias, audit, project, tenant, timestamp};
use crate::error::{Error, Result};
use crate::principal::Actor;

/// Bytes of a config: it is handed to every runtime and player of the version.
const CONFIG_MAX: usize = 256 * 1_024;
/// Longest reference of an image.
const IMAGE_MAX: usize = 512;
/// The image of a version that runs on a developer's own machine only.
pub const LOCAL_IMAGE: &str = "local://";

pub async fn create(app: &App, by: &Actor, call: dev::CreateVersion) -> Result<dev::CreatedVersion> {
    call.config.check().map_err(Error::Invalid)?;
    let config = to_text(&call.config);
    if config.len() > CONFIG_MAX {
        return Err(Error::Invalid(format!("a config has at most {CONFIG_MAX} bytes")));
    }
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::VERSION_MANAGER).await?;
    project::alive(&mut tx, tenant, project).await?;
    let version_id: VersionId = app.ids.mint();
    sqlx::query("insert into version (id, tenant_id, project_id, config) values ($1, $2, $3, $4::text::json)")
        .bind(version_id)
        .bind(tenant)
        .bind(project)
        .bind(config)
        .execute(&mut *tx)
        .await?;
    audit::note(app, &mut tx, by, "create-version", Some(tenant), version_id, None).await?;
    tx.commit().await?;
    Ok(dev::CreatedVersion { version_id })
}

/// A document of ours as the text that the database keeps.
pub(super) fn to_text(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("documents are plain data")
}

pub(super) struct VersionRow {
    pub(super) project: ProjectId,
    pub(super) config: VersionConfig,
    created: OffsetDateTime,
    pub(super) is_deleted: bool,
}

/// A version of the tenant, deleted or not.
pub(super) async fn find(db: &mut PgConnection, tenant: TenantId, id: VersionId) -> Result<VersionRow> {
    let (project, config, created, is_deleted): (ProjectId, String, OffsetDateTime, bool) = sqlx::query_as(
        "select project_id, config::text, created, deleted is not null from version where tenant_id = $1 and id = $2",
    )
    .bind(tenant)
    .bind(id)
    .fetch_optional(db)
    .await?
    .ok_or_else(|| Error::not_found("version", id))?;
    let config = serde_json::from_str(&config).map_err(|cause| anyhow::anyhow!("config of version `{id}`: {cause}"))?;
    Ok(VersionRow {
        project,
        config,
        created,
        is_deleted,
    })
}

/// The version that is named, deleted or not, for somebody who may look at it.
async fn for_viewer(app: &App, by: &Actor, tenant: &Text, id: VersionId) -> Result<(Tx, TenantId, VersionRow)> {
    let tenant = alias::resolve_tenant(app, tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let row = find(&mut tx, tenant, id).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Project(row.project),
        Permission::PROJECT_VIEWER,
    )
    .await?;
    Ok((tx, tenant, row))
}

pub async fn config(app: &App, by: &Actor, call: dev::GetVersionConfig) -> Result<dev::ReadVersionConfig> {
    let (_, _, row) = for_viewer(app, by, &call.tenant, call.version_id).await?;
    Ok(dev::ReadVersionConfig { config: row.config })
}

pub async fn create_image(app: &App, by: &Actor, call: dev::CreateImage) -> Result<Created> {
    check_reference(&call.image, app.config.image_files_enabled)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let named = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    let row = find(&mut tx, tenant, call.version).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Project(row.project),
        Permission::VERSION_MANAGER,
    )
    .await?;
    if row.project != named {
        return Err(Error::not_found("version", call.version));
    }
    alive(&mut tx, tenant, call.version).await?;
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
    let created = done.rows_affected() > 0;
    if created {
        let (operation, detail) = ("create-image", format!("{} {}", call.qualifier.as_str(), call.image));
        audit::note(app, &mut tx, by, operation, Some(tenant), call.version, Some(&detail)).await?;
    }
    tx.commit().await?;
    Ok(Created { created })
}

/// Refuses a deleted version and keeps it from being deleted until the commit.
pub(super) async fn alive(db: &mut PgConnection, tenant: TenantId, id: VersionId) -> Result<()> {
    let alive: Option<i32> =
        sqlx::query_scalar("select 1 from version where tenant_id = $1 and id = $2 and deleted is null for share")
            .bind(tenant)
            .bind(id)
            .fetch_optional(db)
            .await?;
    alive.map(|_| ()).ok_or_else(|| Error::parent("version", id))
}

/// Refuses a version without an image, and keeps one from being deleted until the commit. The images of a deleted version are
/// as good as gone.
pub(super) async fn deployable(db: &mut PgConnection, tenant: TenantId, id: VersionId) -> Result<()> {
    let found: Option<i32> = sqlx::query_scalar(
        "select 1 from version where tenant_id = $1 and id = $2 and deleted is null \
         and exists (select 1 from image where tenant_id = $1 and version_id = $2) for share",
    )
    .bind(tenant)
    .bind(id)
    .fetch_optional(db)
    .await?;
    let missing = || Error::NoImage {
        version: id.to_string(),
    };
    found.map(|_| ()).ok_or_else(missing)
}

/// A name that Docker would take, or an archive on this machine's disk.
fn check_reference(image: &str, files_enabled: bool) -> Result<()> {
    if image.is_empty() || image.len() > IMAGE_MAX {
        return Err(Error::Invalid(format!(
            "image must be 1 to {IMAGE_MAX} characters long"
        )));
    }
    if image == LOCAL_IMAGE {
        return Ok(());
    }
    if let Some(path) = image.strip_prefix("file://") {
        if !files_enabled {
            return Err(Error::Invalid(
                "images from files are switched off here (OMGSERVERS_IMAGE_FILES_ENABLED)".into(),
            ));
        }
        if !path.starts_with('/') || path.contains('\0') || path.split('/').any(|part| part == "..") {
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

pub async fn details(app: &App, by: &Actor, call: dev::GetVersionDetails) -> Result<dev::VersionDetails> {
    let (mut tx, tenant, row) = for_viewer(app, by, &call.tenant, call.version_id).await?;
    Ok(dev::VersionDetails {
        version: dev::Version {
            id: call.version_id,
            tenant_id: tenant,
            project_id: row.project,
            created: timestamp(row.created),
        },
        build_requests: Vec::new(),
        images: image_page(&mut tx, tenant, call.version_id, &super::details_page())
            .await?
            .items,
    })
}

pub async fn list_images(app: &App, by: &Actor, call: dev::ListImages) -> Result<Page<dev::Image>> {
    let (mut tx, tenant, _) = for_viewer(app, by, &call.tenant, call.version_id).await?;
    image_page(&mut tx, tenant, call.version_id, &call.paging).await
}

async fn image_page(
    db: &mut PgConnection,
    tenant: TenantId,
    version: VersionId,
    paging: &Paging,
) -> Result<Page<dev::Image>> {
    let window = Window::new(paging)?;
    let rows: Vec<(ImageId, OffsetDateTime, String, String)> = sqlx::query_as(
        "select id, created, qualifier, image from image where tenant_id = $1 and version_id = $2 and id > $3 order by id limit $4",
    )
    .bind(tenant)
    .bind(version)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(db)
    .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, created, qualifier, image_id)| dev::Image {
            id,
            tenant_id: tenant,
            version_id: version,
            created: timestamp(created),
            qualifier,
            image_id,
        },
    ))
}

pub async fn list(app: &App, by: &Actor, call: dev::ListVersions) -> Result<Page<dev::Version>> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let project = alias::resolve_project(&mut tx, tenant, &call.project).await?;
    require(&mut tx, by, tenant, On::Project(project), Permission::PROJECT_VIEWER).await?;
    page(&mut tx, tenant, project, &call.paging).await
}

/// A page of a project's versions.
pub(super) async fn page(
    db: &mut PgConnection,
    tenant: TenantId,
    project: ProjectId,
    paging: &Paging,
) -> Result<Page<dev::Version>> {
    let window = Window::new(paging)?;
    let rows: Vec<(VersionId, OffsetDateTime)> = sqlx::query_as(
        "select id, created from version where tenant_id = $1 and project_id = $2 and deleted is null and id > $3 order by id limit $4",
    )
    .bind(tenant)
    .bind(project)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(db)
    .await?;
    Ok(window.page(
        rows,
        |(id, _)| id.get(),
        |(id, created)| dev::Version {
            id,
            tenant_id: tenant,
            project_id: project,
            created: timestamp(created),
        },
    ))
}

pub async fn delete(app: &App, by: &Actor, call: dev::DeleteVersion) -> Result<Deleted> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let row = find(&mut tx, tenant, call.id).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Project(row.project),
        Permission::VERSION_MANAGER,
    )
    .await?;
    let done = sqlx::query("update version set deleted = now() where tenant_id = $1 and id = $2 and deleted is null")
        .bind(tenant)
        .bind(call.id)
        .execute(&mut *tx)
        .await?;
    tenant::finish_delete(app, tx, by, tenant, "delete-version", call.id, done.rows_affected()).await
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
        assert!(check_reference("file:///srv/x\0.tar", true).is_err());
    }
}
