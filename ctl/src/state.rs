//! What is remembered between two commands: a file of shell assignments, which scripts may source. Whatever the process
//! inherited is read first, the file wins.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::Write;
use std::iter::Peekable;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::Chars;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// Every variable has it, in the file and in the process environment.
pub(crate) const PREFIX: &str = "OMGSERVERSCTL_";

/// Where everything is kept unless something else is said.
pub(crate) const DEFAULT_DIRECTORY: &str = ".omgserversctl";

/// A larger file is written anew without the lines that no longer count.
const FILE_MAX: usize = 256 * 1_024;

/// Another command holds the file for microseconds.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct State {
    directory: PathBuf,
    values: BTreeMap<String, String>,
}

impl State {
    pub(crate) fn open(directory: &Path) -> anyhow::Result<Self> {
        let directory = directory.to_owned();
        tighten(&directory);
        let inherited = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix(PREFIX)?.to_owned();
            // This one says where the file is; it is no part of what is remembered.
            (name != "DIRECTORY").then(|| Some((name, value.to_str()?.to_owned())))?
        });
        let mut values: BTreeMap<_, _> = inherited.collect();
        values.extend(parse(&read(&directory)?));
        Ok(Self { directory, values })
    }

    /// The value of a variable, named without the prefix. Empty is as good as missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Every variable, named without the prefix.
    pub(crate) fn all(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Remembers values for the next command too. Lines are appended, as scripts that share the file do: the last one of a
    /// name wins.
    pub(crate) fn set<'a>(&mut self, changes: impl IntoIterator<Item = (&'a str, String)>) -> anyhow::Result<()> {
        let directory = &self.directory;
        let failed = || format!("cannot store results in `{}`", directory.display());
        create_state_directory(directory).with_context(failed)?;
        let _lock = lock(&directory.join("environment.lock")).with_context(failed)?;
        let file = directory.join("environment");
        // Read again: another command may have stored something since.
        let text = read(directory)?;
        let mut stored = parse(&text);
        let mut lines = String::new();
        for (name, value) in changes {
            if stored.get(name) != Some(&value) {
                lines += &assignment(name, &value);
                stored.insert(name.to_owned(), value.clone());
            }
            self.values.insert(name.to_owned(), value);
        }
        if lines.is_empty() {
            return Ok(());
        }
        if text.len() + lines.len() > FILE_MAX && !has_foreign_words(&text) {
            let text: String = stored.iter().map(|(name, value)| assignment(name, value)).collect();
            return write_private_file(&file, text.as_bytes()).with_context(failed);
        }
        if !text.is_empty() && !text.ends_with('\n') {
            lines.insert(0, '\n');
        }
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&file)
            .with_context(failed)?;
        file.write_all(lines.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(failed)
    }

    /// Forgets everything that was stored.
    pub(crate) fn reset(&mut self) -> anyhow::Result<()> {
        let file = self.directory.join("environment");
        match fs::remove_file(&file) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                Err(cause).with_context(|| format!("cannot delete `{}`", file.display()))
            }
            _ => Ok(()),
        }
    }

    /// Where everything is kept.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Creates a folder that only its owner can look into.
pub(crate) fn create_private_directory(path: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates the folder of the state, which `git add .` passes over: there are passwords in it.
pub(crate) fn create_state_directory(path: &Path) -> std::io::Result<()> {
    let is_ours = !path.exists() || path.file_name() == Some(DEFAULT_DIRECTORY.as_ref());
    create_private_directory(path)?;
    let ignore = path.join(".gitignore");
    if is_ours && !ignore.exists() {
        fs::write(ignore, "*\n")?;
    }
    Ok(())
}

/// Replaces a file that only its owner can read, at once or not at all.
pub(crate) fn write_private_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn read(directory: &Path) -> anyhow::Result<String> {
    let file = directory.join("environment");
    match fs::read_to_string(&file) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.with_context(|| format!("cannot read `{}`", file.display())),
    }
}

/// A line as scripts know it: passwords in quotes, everything else without where a shell reads it right.
fn assignment(name: &str, value: &str) -> String {
    let value = if name.ends_with("PASSWORD") {
        quote(value)
    } else {
        shell_word(value)
    };
    format!("export {PREFIX}{name}={value}\n")
}

/// Takes from others what an older program let them read. Whoever may not change that goes on with it as it is.
fn tighten(directory: &Path) {
    let restrict = |path: &Path, mode: u32| {
        if fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0) {
            let _ = fs::set_permissions(path, Permissions::from_mode(mode));
        }
    };
    // A folder of another name was chosen by somebody, who may keep other things in it.
    if directory.file_name() == Some(DEFAULT_DIRECTORY.as_ref()) {
        restrict(directory, 0o700);
    }
    for folder in ["temp", "versions"] {
        restrict(&directory.join(folder), 0o700);
    }
    for file in ["environment", "logs", "logs.1"] {
        restrict(&directory.join(file), 0o600);
    }
}

/// Held until the file is dropped.
fn lock(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(cause)) => return Err(cause.into()),
            Err(TryLockError::WouldBlock) if started.elapsed() < LOCK_WAIT_MAX => {
                std::thread::sleep(Duration::from_millis(10))
            }
            Err(TryLockError::WouldBlock) => bail!("another command holds `{}`", path.display()),
        }
    }
}

/// A word that a shell reads as exactly this text, in quotes only where they are needed.
pub(crate) fn shell_word(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:@%+,=-".contains(letter);
    if !value.is_empty() && value.chars().all(is_plain) {
        value.to_owned()
    } else {
        quote(value)
    }
}

fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// The assignments in a text that a shell could source; everything else in it is skipped.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut rest = text.chars().peekable();
    while rest.peek().is_some() {
        let assignment = word(&mut rest);
        if let Some((name, value)) = assignment.strip_prefix(PREFIX).and_then(|a| a.split_once('=')) {
            values.insert(name.to_owned(), value.to_owned());
        }
    }
    values
}

/// Whether there is something besides our assignments, such as a comment.
fn has_foreign_words(text: &str) -> bool {
    let mut rest = text.chars().peekable();
    std::iter::from_fn(|| rest.peek().is_some().then(|| word(&mut rest)))
        .any(|word| word != "export" && !word.starts_with(PREFIX))
}

/// The next word, quotes removed, and the blanks behind it.
fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = rest.next() {
        match c {
            '\'' => word.extend(rest.by_ref().take_while(|c| *c != '\'')),
            '"' => {
                while let Some(c) = rest.next().filter(|c| *c != '"') {
                    match (c, rest.peek()) {
                        ('\\', Some('"' | '\\' | '$' | '`')) => word.extend(rest.next()),
                        _ => word.push(c),
                    }
                }
            }
            '\\' => word.extend(rest.next()),
            '#' if word.is_empty() => while rest.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => break,
            c => word.push(c),
        }
    }
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were_stored_and_a_shell_reads_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("state");
        let values = [
            "plain",
            "it's $HOME `id` \"quoted\" \\",
            "",
            "two\nlines",
            "ünï",
            "$2a$10$abc",
            " # x",
        ];
        for value in values {
            State::open(&directory)
                .unwrap()
                .set([("TEST_VALUE", value.to_owned())])
                .unwrap();
            assert_eq!(State::open(&directory).unwrap().all()["TEST_VALUE"], value);
            let file = directory.join("environment");
            let script = format!(". '{}'; printf %s \"$OMGSERVERSCTL_TEST_VALUE\"", file.display());
            let shell = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(shell.stdout).unwrap(), value);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn files_of_the_old_script_are_understood_and_the_last_line_wins() {
        let old = "export OMGSERVERSCTL_TENANT=1\n# a comment=2\nexport OMGSERVERSCTL_ADMIN_PASSWORD='a b'\n\
                   export OMGSERVERSCTL_TENANT=2\nexport OTHER=3\nexport OMGSERVERSCTL_X=\"a\\\"b\"c\\ d\n";
        let values = parse(old);
        assert_eq!(
            (values["TENANT"].as_str(), values["ADMIN_PASSWORD"].as_str()),
            ("2", "a b")
        );
        assert_eq!(values["X"], "a\"bc d");
        assert_eq!(values.len(), 3);
    }

    #[test]
    fn lines_of_others_stay_and_ours_come_after_them() {
        let check = |old: &str, new: &str| {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("environment"), old).unwrap();
            let mut state = State::open(folder.path()).unwrap();
            state.set([("TENANT", "2".to_owned())]).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join("environment")).unwrap(), new);
            assert_eq!(State::open(folder.path()).unwrap().get("TENANT"), Some("2"));
        };
        let ours = "export OMGSERVERSCTL_TENANT=2\n";
        for others in [
            "export OMGSERVERSCTL_TENANT=1\nexport OMGSERVERSCTL_TENANT=3\n",
            "# don't\n",
            "export PATH=$PATH:/opt\n",
            "export OMGSERVERSCTL_TENANT=1 # mine\n",
        ] {
            check(others, &format!("{others}{ours}"));
            check(others.trim_end(), &format!("{others}{ours}"));
        }
        check(ours, ours);
    }

    #[test]
    fn a_file_that_grew_is_written_anew_without_what_no_longer_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("environment");
        let old = "export OMGSERVERSCTL_ADMIN_TOKEN=old\n".repeat(FILE_MAX / 32);
        fs::write(&file, old + "export OMGSERVERSCTL_ADMIN_PASSWORD=a\n").unwrap();
        let mut state = State::open(folder.path()).unwrap();
        state.set([("ADMIN_TOKEN", "new".to_owned())]).unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "export OMGSERVERSCTL_ADMIN_PASSWORD='a'\nexport OMGSERVERSCTL_ADMIN_TOKEN=new\n"
        );
    }

    #[test]
    fn a_script_that_appends_at_the_same_time_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("environment");
        let script = format!(
            "for n in $(seq 200); do echo \"export OMGSERVERSCTL_OLD_$n=$n\" >>'{}'; done",
            file.display()
        );
        let mut shell = std::process::Command::new("sh").args(["-c", &script]).spawn().unwrap();
        for n in 0..50 {
            let mut state = State::open(folder.path()).unwrap();
            state.set([(format!("NEW_{n}").as_str(), "x".to_owned())]).unwrap();
        }
        assert!(shell.wait().unwrap().success());
        let stored = parse(&fs::read_to_string(&file).unwrap());
        let count = |prefix: &str| stored.keys().filter(|name| name.starts_with(prefix)).count();
        assert_eq!((count("OLD_"), count("NEW_")), (200, 50));
    }

    #[test]
    fn what_others_could_read_they_no_longer_can() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join(DEFAULT_DIRECTORY);
        fs::create_dir_all(folder.join("temp")).unwrap();
        let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for file in ["environment", "logs"] {
            fs::write(folder.join(file), "").unwrap();
            open(&folder.join(file), 0o644);
        }
        open(&folder, 0o755);
        open(&folder.join("temp"), 0o755);
        State::open(&folder).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            ["", "temp", "environment", "logs"].map(|name| mode(&folder.join(name))),
            [0o700, 0o700, 0o600, 0o600]
        );
    }

    #[test]
    fn git_passes_over_the_folder_but_a_folder_of_somebody_else_stays_as_it_is() {
        let parent = tempfile::tempdir().unwrap();
        let store = |folder: &Path| {
            let mut state = State::open(folder).unwrap();
            state.set([("TENANT", "2".to_owned())]).unwrap();
            fs::read_to_string(folder.join(".gitignore")).ok()
        };
        let (old, new, other) = (DEFAULT_DIRECTORY, "new", "other");
        fs::create_dir(parent.path().join(old)).unwrap();
        fs::create_dir(parent.path().join(other)).unwrap();
        let stored = [old, new, other].map(|name| store(&parent.path().join(name)));
        assert_eq!(
            stored.each_ref().map(Option::as_deref),
            [Some("*\n"), Some("*\n"), None]
        );
    }

    #[test]
    fn two_commands_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let directory = folder.path();
                scope.spawn(move || {
                    for n in 0..10 {
                        let mut state = State::open(directory).unwrap();
                        state
                            .set([(format!("T{thread}_{n}").as_str(), "x".to_owned())])
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(
            State::open(folder.path())
                .unwrap()
                .all()
                .keys()
                .filter(|name| name.starts_with('T'))
                .count(),
            40
        );
    }
}
