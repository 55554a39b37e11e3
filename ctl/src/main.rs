//! `omgctl`, the command line of OMGSERVERS: what an admin, support and a developer ask of an installation, and
//! `omgctl up`, which runs a whole installation on this machine.

mod archive;
mod arguments;
mod command;
mod context;
mod failure;
mod input;
mod output;
mod process;
mod request_log;
mod state;
mod table;
mod up;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::context::Context;
use crate::failure::Result;
use crate::output::Output;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output::new(arguments.format());
    // A second provider cannot be there yet: this is the first thing that the process does.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(arguments, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit)
        }
    }
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
        Command::Logs => context()?.print_log(),
        Command::Up(group) => up::run(output, group.command).await,
        Command::Down(group) => up::down::run(output, group.command).await,
    }
}
