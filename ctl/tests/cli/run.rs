//! Runs `omgctl` and compares what it says with files.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// `omgctl` in a folder of its own, with nothing inherited.
pub(crate) fn omgctl(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omgctl"));
    command.env_clear().current_dir(folder).stdin(Stdio::null());
    command
}

/// Commands with their answers, as somebody would see them.
pub(crate) struct Transcript {
    folder: PathBuf,
    text: String,
    /// What differs from run to run, and what is written instead.
    replaced: Vec<(String, &'static str)>,
}

impl Transcript {
    pub(crate) fn new(folder: &Path) -> Self {
        let replaced = vec![(folder.display().to_string(), "FOLDER")];
        Self {
            folder: folder.to_owned(),
            text: String::new(),
            replaced,
        }
    }

    pub(crate) fn replace(mut self, what: impl Into<String>, with: &'static str) -> Self {
        self.replaced.push((what.into(), with));
        self
    }

    pub(crate) fn run(&mut self, line: &str) -> &mut Self {
        self.run_with_input(line, "")
    }

    /// A command on every line.
    pub(crate) fn run_all(&mut self, lines: &str) -> &mut Self {
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            self.run(line);
        }
        self
    }

    pub(crate) fn run_with_input(&mut self, line: &str, input: &str) -> &mut Self {
        self.add("omgctl", line, input, str::to_owned)
    }

    /// By the name of the old script.
    pub(crate) fn run_old(&mut self, line: &str) -> &mut Self {
        self.add("omgserversctl", line, "", without_times)
    }

    fn add(&mut self, program: &str, line: &str, input: &str, clean: fn(&str) -> String) -> &mut Self {
        let mut command = omgctl(&self.folder);
        command.arg0(program).args(line.split_whitespace());
        let answer = answer(command, input);
        let (stdout, stderr) = (text(&answer.stdout), text(&answer.stderr));
        let exit = answer.status.code().expect("it was not killed");
        self.text += &format!(
            "$ {program} {line}\n{}{}exit {exit}\n\n",
            marked("", &clean(&stdout)),
            marked("! ", &clean(&stderr))
        );
        self
    }

    /// Compares with `snapshots/<name>.txt`; with OMGCTL_SNAPSHOTS=write in the environment it writes the file.
    pub(crate) fn check(&self, name: &str) {
        let said = self
            .replaced
            .iter()
            .fold(self.text.clone(), |said, (what, with)| said.replace(what, with));
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/cli/snapshots")
            .join(format!("{name}.txt"));
        if std::env::var_os("OMGCTL_SNAPSHOTS").is_some_and(|value| value == "write") {
            std::fs::write(&file, &said).unwrap();
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(said == expected, "{} differs, it says now:\n{said}", file.display());
    }
}

pub(crate) fn answer(mut command: Command, input: &str) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads nothing may have gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// `DATE` instead of the six words that `date` prints, and no milliseconds.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let days = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];
        if days.iter().any(|day| line.starts_with(day)) {
            let words: Vec<_> = line.split_whitespace().collect();
            let year = words[5];
            let rest = line.split_once(&format!(" {year} ")).unwrap().1;
            return format!("DATE {rest}");
        }
        match (line.split_once(" after "), line.split_once(" ms:")) {
            (Some((before, _)), Some((_, after))) => format!("{before} after N ms:{after}"),
            _ => line.to_owned(),
        }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

fn marked(mark: &str, text: &str) -> String {
    text.split_inclusive('\n')
        .map(|line| format!("{mark}{}\n", line.trim_end_matches('\n')))
        .collect()
}
