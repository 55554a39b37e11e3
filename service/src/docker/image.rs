//! How an image comes to a Docker host: it is there, or pulled by name, or loaded from an archive on our disk.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bollard::{
    Docker,
    auth::DockerCredentials,
    errors::Error as DockerError,
    models::{ErrorDetail, ImageInspect},
    query_parameters::{CreateImageOptions, ImportImageOptions},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use tokio::sync::{Mutex, mpsc};

use super::{Inner, failure::status};
use crate::{
    archive,
    host::{HostError, OnProgress, Progress, archive_path, blocking},
};

/// Under this name archives are loaded, with their digest as the tag: what an archive calls itself could be the name
/// of somebody else's image.
const ARCHIVE_REPOSITORY: &str = "omgservers/archive";
/// Pieces of an archive between the disk and the socket.
const PIECES_MAX: usize = 8;
const PIECE_BYTES: usize = 256 << 10;

/// An image that is on the host.
pub(super) struct Fetched {
    pub(super) reference: String,
    /// Folders for which the image wants volumes.
    pub(super) volumes: Vec<String>,
}

impl Inner {
    pub(super) async fn fetch(
        &self,
        docker: &Docker,
        image: &str,
        progress: OnProgress<'_>,
    ) -> Result<Fetched, HostError> {
        match archive_path(image, &self.settings)? {
            Some(path) => self.fetch_archive(docker, path, progress).await,
            None => self.fetch_name(docker, &check_reference(image)?, progress).await,
        }
    }

    async fn fetch_name(&self, docker: &Docker, name: &str, progress: OnProgress<'_>) -> Result<Fetched, HostError> {
        if let Some(there) = self.find_image(docker, name).await? {
            return Ok(there);
        }
        progress(Progress::Pulling);
        let gate = self.gate(name);
        let _alone = gate.lock().await;
        if let Some(there) = self.find_image(docker, name).await? {
            return Ok(there);
        }
        let patient = docker.clone().with_timeout(self.settings.pull_timeout);
        let options = CreateImageOptions {
            from_image: Some(name.to_owned()),
            ..Default::default()
        };
        let pull = patient.create_image(Some(options), None, self.credentials(name));
        let pull = pull.map(|item| item.map(|info| info.error_detail));
        self.drain(pull, &format!("pull image `{name}`")).await?;
        self.find_image(docker, name).await?.ok_or_else(|| self.vanished(name))
    }

    async fn fetch_archive(
        &self,
        docker: &Docker,
        path: PathBuf,
        progress: OnProgress<'_>,
    ) -> Result<Fetched, HostError> {
        let shown = path.display().to_string();
        let unusable = |why: String| HostError::Image(format!("archive `{shown}` cannot be used: {why}"));
        let image = blocking(self.settings.response_timeout, {
            let path = path.clone();
            move || archive::read(&path)
        });
        let image = image.await.map_err(unusable)?;
        let tag = format!("{ARCHIVE_REPOSITORY}:{}", image.digest);
        if let Some(there) = self.find_image(docker, &tag).await? {
            return Ok(there);
        }
        progress(Progress::Pulling);
        let gate = self.gate(&tag);
        let _alone = gate.lock().await;
        if let Some(there) = self.find_image(docker, &tag).await? {
            return Ok(there);
        }
        let (pieces, body) = mpsc::channel(PIECES_MAX);
        let copying = tokio::task::spawn_blocking({
            let tag = tag.clone();
            move || copy_into(&path, &image, &tag, pieces)
        });
        let patient = docker.clone().with_timeout(self.settings.pull_timeout);
        let body = futures_util::stream::unfold(body, async |mut body| body.recv().await.map(|piece| (piece, body)));
        let load = patient.import_image(ImportImageOptions::default(), bollard::body_try_stream(body), None);
        let load = load.map(|item| item.map(|info| info.error_detail));
        let loaded = self.drain(load, &format!("load archive `{shown}`")).await;
        // The daemon sees only a connection that ends early; the copy knows why.
        if let Ok(Err(error)) = copying.await
            && error
                .downcast_ref::<io::Error>()
                .is_none_or(|cause| cause.kind() != io::ErrorKind::BrokenPipe)
        {
            return Err(unusable(format!("{error:#}")));
        }
        loaded?;
        self.find_image(docker, &tag).await?.ok_or_else(|| self.vanished(&tag))
    }

    async fn find_image(&self, docker: &Docker, name: &str) -> Result<Option<Fetched>, HostError> {
        let volumes = |there: ImageInspect| there.config.and_then(|config| config.volumes).unwrap_or_default();
        match docker.inspect_image(name).await {
            Ok(there) => Ok(Some(Fetched {
                reference: name.to_owned(),
                volumes: volumes(there),
            })),
            Err(cause) if status(&cause) == Some(404) => Ok(None),
            Err(cause) => Err(self.failure(&format!("look for image `{name}`"), &cause)),
        }
    }

    /// Reads a daemon's report to its end. Errors come as items of it.
    async fn drain(
        &self,
        report: impl Stream<Item = Result<Option<ErrorDetail>, DockerError>>,
        what: &str,
    ) -> Result<(), HostError> {
        let limit = self.settings.pull_timeout;
        let reading = async {
            let mut report = std::pin::pin!(report);
            while let Some(item) = report.next().await {
                let detail = match item {
                    Ok(detail) => detail.and_then(|detail| detail.message),
                    Err(DockerError::RequestTimeoutError) => return Err(self.too_slow(what, limit)),
                    Err(cause) => return Err(self.fetch_failure(what, &cause)),
                };
                if let Some(error) = detail {
                    return Err(self.fetch_failure(what, &DockerError::DockerStreamError { error }));
                }
            }
            Ok(())
        };
        match tokio::time::timeout(limit, reading).await {
            Ok(result) => result,
            Err(_) => Err(self.too_slow(what, limit)),
        }
    }

    /// What a daemon refuses while it fetches an image is the image's fault, unless it has no room.
    fn fetch_failure(&self, what: &str, cause: &DockerError) -> HostError {
        match self.failure(what, cause) {
            HostError::Refused(text) => HostError::Image(text),
            failure => failure,
        }
    }

    fn too_slow(&self, what: &str, limit: Duration) -> HostError {
        HostError::Image(format!(
            "host `{}` could not {what} within {} s",
            self.address,
            limit.as_secs_f32()
        ))
    }

    fn vanished(&self, name: &str) -> HostError {
        HostError::Image(format!(
            "image `{name}` was fetched, but host `{}` does not have it",
            self.address
        ))
    }

    fn credentials(&self, image: &str) -> Option<DockerCredentials> {
        let login = self.settings.registry.as_ref()?;
        let (registry, _) = image.split_once('/')?;
        (registry == login.address).then(|| DockerCredentials {
            username: Some(login.username.clone()),
            password: Some(login.password.clone()),
            serveraddress: Some(login.address.clone()),
            ..Default::default()
        })
    }

    /// The lock under which one image is fetched. Forgotten with its last holder.
    fn gate(&self, key: &str) -> Arc<Mutex<()>> {
        let mut fetches = self.fetches.lock().expect("no code panics while it holds this lock");
        fetches.retain(|_, gate| gate.strong_count() > 0);
        if let Some(gate) = fetches.get(key).and_then(std::sync::Weak::upgrade) {
            return gate;
        }
        let gate = Arc::new(Mutex::new(()));
        fetches.insert(key.to_owned(), Arc::downgrade(&gate));
        gate
    }
}

/// The image's name with a tag. Without one a daemon would pull every tag there is.
fn check_reference(image: &str) -> Result<String, HostError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'/' | b':' | b'@');
    let starts_well = image.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if !starts_well || !image.bytes().all(good) || image.contains("..") || image.contains("//") {
        return Err(HostError::Image(format!("`{image}` is no name of an image")));
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    Ok(match last.contains([':', '@']) {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    })
}

type Piece = io::Result<Bytes>;

/// Copies the archive, piece by piece, until it is done or nobody listens.
fn copy_into(path: &Path, image: &archive::Image, tag: &str, pieces: mpsc::Sender<Piece>) -> anyhow::Result<()> {
    let out = io::BufWriter::with_capacity(PIECE_BYTES, Pieces(pieces.clone()));
    let copied = archive::copy(path, image, tag, out);
    if copied.is_err() {
        // Without this the daemon would take a short archive for a whole one.
        let _ = pieces.blocking_send(Err(io::Error::other("the archive cannot be read to its end")));
    }
    copied
}

/// The writing end of a body that is read elsewhere.
struct Pieces(mpsc::Sender<Piece>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_means_the_latest() {
        let check = |image: &str, expected: &str| assert_eq!(check_reference(image).unwrap(), expected);
        check("shooter", "shooter:latest");
        check(
            "localhost:5000/omgservers/1/2/universal",
            "localhost:5000/omgservers/1/2/universal:latest",
        );
        check(
            "localhost:5000/omgservers/1/2/universal:4",
            "localhost:5000/omgservers/1/2/universal:4",
        );
        check("shooter@sha256:aa", "shooter@sha256:aa");
    }

    #[test]
    fn a_name_cannot_become_another_request_to_the_daemon() {
        for image in ["", "/etc", "a/../../containers/x", "a?b=c", "a b", "a#b", "a%2fb", "-a"] {
            assert!(matches!(check_reference(image), Err(HostError::Image(_))), "{image}");
        }
    }
}
