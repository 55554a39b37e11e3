//! `omgctl`, the command line of OMGSERVERS: what an admin, support and a developer ask of an installation, and
//! `omgctl up`, which runs a whole installation on this machine. Called `omgserversctl`, it speaks as the script of that
//! name did.

mod archive;
mod arguments;
mod command;
mod context;
mod failure;
mod first_lobby;
mod input;
mod json;
mod leash;
mod local_run;
mod old_face;
mod output;
mod process;
mod request_log;
mod show;
mod signals;
mod state;
mod table;
mod up;
mod upload;

use std::ffi::OsString;
use std::process::ExitCode;

use crate::arguments::{Arguments, Command, Format};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;

fn main() -> ExitCode {
    // A second provider cannot be there yet: this is the first thing that the process does.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let words: Vec<OsString> = std::env::args_os().collect();
    let program = words
        .first()
        .map(|program| program.to_string_lossy())
        .unwrap_or_default();
    if old_face::is_called_by(&program) {
        let words: Vec<_> = words[1..]
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        return ExitCode::from(run_old_face(&program, &words));
    }
    let (output, result) = if words.get(1).is_some_and(|word| word == leash::WORD) {
        (Output::new(Format::Text), leash::run(&words[2..]))
    } else {
        let arguments = Arguments::read();
        let output = Output::new(arguments.format());
        (output, run(arguments, output))
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
}

#[tokio::main]
async fn run_old_face(program: &str, words: &[String]) -> u8 {
    old_face::run(program, words).await
}

#[tokio::main]
async fn run(arguments: Arguments, output: Output) -> Result {
    let context = || Context::open(&arguments.directory, output);
    match arguments.command {
        Command::Environment(group) => command::environment::run(&mut context()?, group.command).await,
        Command::Admin(group) => command::admin::run(&mut context()?, group.command).await,
        Command::Support(group) => command::support::run(&mut context()?, group.command).await,
        Command::Developer(group) => command::developer::run(&mut context()?, group.command).await,
        Command::Image(group) => command::image::run(output, group),
        Command::Get { variable } => command::environment::print_variable(&context()?, &variable),
        Command::Logs => context()?.print_log(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::tree(), "omgctl", &mut script);
            output.bare(String::from_utf8_lossy(&script));
            Ok(())
        }
        Command::Up(group) => up::run(output, group.command).await,
        Command::Down(group) => up::down::run(output, group.command).await,
    }
}

/// Commands that the snapshots show of a program, without its name.
#[cfg(test)]
fn snapshots(program: &str) -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/snapshots");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let texts: Vec<_> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let commands = lines.filter_map(|line| line.strip_prefix("$ ")?.strip_prefix(program)?.strip_prefix(' '));
    commands.map(str::to_owned).collect()
}
