//! How a process is started from an unpacked image.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::process::{Child, Command};

use crate::{
    archive,
    host::{HostError, RunSpec},
};

const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How long a program that was unpacked a moment ago may be busy.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// Everything that is needed to start a process.
#[derive(Clone)]
pub(super) struct Launch {
    /// Digest of the image.
    pub(super) image: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    environment: Vec<(String, String)>,
}

impl Launch {
    pub(super) fn spawn(&self, log: &File) -> Result<Child, HostError> {
        let deadline = Instant::now() + BUSY_WAIT;
        loop {
            let attempt = self.try_spawn(log);
            match attempt {
                // Another thread forked while the program was being unpacked, and holds it open until its own exec.
                Err(cause) if cause.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(cause) => {
                    let text = format!("`{}` cannot be started: {cause}", self.program.display());
                    return Err(match cause.kind() {
                        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => HostError::Full(text),
                        _ => HostError::Image(text),
                    });
                }
                Ok(child) => return Ok(child),
            }
        }
    }

    fn try_spawn(&self, log: &File) -> io::Result<Child> {
        Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(&self.folder)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()
    }
}

/// The image's command with its program found inside the image; `mark` is a variable of its environment.
pub(super) fn command(
    image: &archive::Image,
    root: &Path,
    spec: &RunSpec,
    mark: (&'static str, String),
) -> Result<Launch, HostError> {
    let unusable = |why: &str| HostError::Image(format!("image `{}` cannot be run: {why}", spec.image));
    let (program, arguments) = image
        .command
        .split_first()
        .ok_or_else(|| unusable("it names no entry point"))?;
    let working = Path::new("/").join(&image.working_directory);
    let mut environment = vec![("PATH".to_owned(), PATH_DEFAULT.to_owned())];
    environment.extend(image.environment.iter().chain(&spec.environment).cloned());
    environment.push((mark.0.to_owned(), mark.1));
    let candidates: Vec<PathBuf> = match program.contains('/') {
        true => vec![working.join(program)],
        false => {
            let path = environment
                .iter()
                .rev()
                .find(|(name, _)| name == "PATH")
                .map(|(_, value)| value.as_str());
            path.unwrap_or(PATH_DEFAULT)
                .split(':')
                .map(|folder| Path::new(folder).join(program))
                .collect()
        }
    };
    let places = candidates
        .iter()
        .filter_map(|candidate| archive::resolve(root, candidate).ok());
    let program = places.into_iter().find(|place| place.is_file());
    let folder = archive::resolve(root, &working).ok().filter(|folder| folder.is_dir());
    Ok(Launch {
        image: image.digest.clone(),
        program: program.ok_or_else(|| unusable("its entry point is not in it"))?,
        arguments: arguments.to_vec(),
        folder: folder.ok_or_else(|| unusable("its working directory is not in it"))?,
        environment,
    })
}
