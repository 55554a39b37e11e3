//! Archives of a version's files, from which an image is to be built.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use omgservers_protocol::call::Page;
use omgservers_protocol::developer as dev;
use omgservers_protocol::id::{FilesArchiveId, UserId};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use crate::App;
use crate::db::one_at_a_time;
use crate::entity::page::Window;
use crate::entity::permission::{On, Permission, require};
use crate::entity::{alias, audit, timestamp, version};
use crate::error::{Error, Result};
use crate::principal::Actor;
use crate::zip_check;

/// Archives on their way to one instance at a time, each of which may take 32 MB of memory: of those who may upload, and of
/// those of whom it is not known yet.
const UPLOADS_MAX: [usize; 2] = [4, 2];
/// Archives of one version.
const ARCHIVES_MAX: i64 = 16;

/// Who is uploading: a few at a time, and nobody twice, so that no one keeps all others waiting; and strangers only each
/// other.
#[derive(Debug, Default)]
pub struct Uploads([Mutex<HashSet<UserId>>; 2]);

/// Lasts as long as an upload.
pub struct Upload<'a> {
    of: &'a Mutex<HashSet<UserId>>,
    user: UserId,
}

impl Uploads {
    pub fn begin(&self, user: UserId, is_checked: bool) -> Result<Upload<'_>> {
        let lane = usize::from(!is_checked);
        let of = &self.0[lane];
        let mut users = of.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() == UPLOADS_MAX[lane] && !users.contains(&user) {
            return Err(Error::Unavailable("too many archives are on their way, try again"));
        }
        match users.insert(user) {
            true => Ok(Upload { of, user }),
            false => Err(Error::Unavailable("another archive of yours is on its way, try again")),
        }
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let mut users = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        users.remove(&self.user);
    }
}

/// Whether the caller may upload at all, before the archive is read.
pub async fn check(app: &App, by: &Actor, call: &dev::UploadFilesArchive) -> Result<()> {
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let row = version::find(&mut tx, tenant, call.version_id).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Project(row.project),
        Permission::VERSION_MANAGER,
    )
    .await?;
    if row.is_deleted {
        return Err(Error::parent("version", call.version_id));
    }
    Ok(())
}

pub async fn create(
    app: &App,
    by: &Actor,
    call: dev::UploadFilesArchive,
    archive: Vec<u8>,
) -> Result<dev::UploadedFilesArchive> {
    check(app, by, &call).await?;
    let (archive, files) = tokio::task::spawn_blocking(move || {
        let files = zip_check::check(&archive)?;
        Ok::<_, String>((archive, files))
    })
    .await
    .map_err(anyhow::Error::from)?
    .map_err(Error::WrongZip)?;
    let sha256: String = Sha256::digest(&archive)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let files_archive_id: FilesArchiveId = app.ids.mint();
    let mut tx = app.db.begin(tenant.get()).await?;
    version::alive(&mut tx, tenant, call.version_id).await?;
    one_at_a_time(&mut tx, call.version_id.get()).await?;
    let archives: i64 = sqlx::query_scalar("select count(*) from files_archive where version_id = $1")
        .bind(call.version_id)
        .fetch_one(&mut *tx)
        .await?;
    if archives >= ARCHIVES_MAX {
        return Err(Error::Conflict(format!(
            "the version has {ARCHIVES_MAX} archives already, create another version"
        )));
    }
    sqlx::query(
        "insert into files_archive (id, tenant_id, version_id, archive, bytes, files, sha256) values ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(files_archive_id)
    .bind(tenant)
    .bind(call.version_id)
    .bind(&archive)
    .bind(i64::try_from(archive.len()).unwrap_or(i64::MAX))
    .bind(i32::try_from(files).unwrap_or(i32::MAX))
    .bind(&sha256)
    .execute(&mut *tx)
    .await?;
    let (operation, detail) = ("upload-files-archive", format!("sha256 {sha256}"));
    audit::note(
        app,
        &mut tx,
        by,
        operation,
        Some(tenant),
        call.version_id,
        Some(&detail),
    )
    .await?;
    tx.commit().await?;
    Ok(dev::UploadedFilesArchive { files_archive_id })
}

pub async fn list(app: &App, by: &Actor, call: dev::ListFilesArchives) -> Result<Page<dev::FilesArchive>> {
    let window = Window::new(&call.paging)?;
    let tenant = alias::resolve_tenant(app, &call.tenant).await?;
    let mut tx = app.db.begin(tenant.get()).await?;
    let row = version::find(&mut tx, tenant, call.version_id).await?;
    require(
        &mut tx,
        by,
        tenant,
        On::Project(row.project),
        Permission::PROJECT_VIEWER,
    )
    .await?;
    let rows: Vec<(FilesArchiveId, OffsetDateTime, i64, i32, String)> = sqlx::query_as(
        "select id, created, bytes, files, sha256 from files_archive \
         where tenant_id = $1 and version_id = $2 and id > $3 order by id limit $4",
    )
    .bind(tenant)
    .bind(call.version_id)
    .bind(window.after())
    .bind(window.limit())
    .fetch_all(&mut *tx)
    .await?;
    Ok(window.page(
        rows,
        |(id, ..)| id.get(),
        |(id, created, bytes, files, sha256)| dev::FilesArchive {
            id,
            tenant_id: tenant,
            version_id: call.version_id,
            created: timestamp(created),
            bytes,
            files,
            sha256,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_upload_at_a_time_and_nobody_twice() {
        let uploads = Uploads::default();
        let begin = |user, is_checked| uploads.begin(UserId(user), is_checked);
        let strangers: Vec<_> = (7..9).map(|user| begin(user, false).unwrap()).collect();
        let mut begun: Vec<_> = (0..4).map(|user| begin(user, true).unwrap()).collect();
        assert!(begin(0, true).is_err() && begin(4, true).is_err() && begin(4, false).is_err());
        begun.remove(0);
        assert!(begin(1, true).is_err());
        assert!(begin(4, true).is_ok());
        drop(strangers);
        assert!(begin(4, false).is_ok());
    }
}
