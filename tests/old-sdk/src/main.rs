//! `old-runtime`: a game server built with the old Lua SDK, as far as the platform can tell.
//!
//! Exit codes are the SDK's: 1 a variable is missing, 4 the service refused something, 5 the dispatcher connection ended.
//! There is no handler for SIGTERM, since the engine has none: as process 1 of a container it has to be killed.

use old_sdk::{Exit, Game, Runtime, Settings};
use std::io::{self, Write};
use std::process::exit;
use std::thread;
use std::time::{Duration, Instant};

/// The engine's headless build runs sixty frames a second too.
const FRAME: Duration = Duration::from_micros(16_667);

fn main() {
    let Exit { code, reason } = match Settings::from_environment() {
        Ok(settings) => play(&settings),
        Err(exit) => exit,
    };
    log(&format!("Terminated, code={code}, reason={reason}"));
    exit(code);
}

fn play(settings: &Settings) -> Exit {
    let qualifier = &settings.credentials.runtime_qualifier;
    let mut runtime = match Runtime::new(&settings.credentials, settings.variant, settings.is_linked()) {
        Ok(runtime) => runtime,
        Err(error) => {
            return Exit {
                code: 1,
                reason: error.to_string(),
            };
        }
    };
    log(&format!(
        "{qualifier} starts, variant {:?}, linked {}",
        settings.variant,
        runtime.is_linked()
    ));
    if let Err(error) = runtime.start() {
        return Exit {
            code: 1,
            reason: error.to_string(),
        };
    }
    let mut game = Game::default();
    let mut last_frame = Instant::now();
    loop {
        thread::sleep(FRAME);
        let now = Instant::now();
        let events = runtime.update(now.duration_since(last_frame).as_secs_f64());
        last_frame = now;
        for error in runtime.take_script_errors() {
            log(&format!("SDK script error: {error}"));
        }
        for event in events {
            log(&format!("{event:?}"));
            match game.handle(&mut runtime, &event) {
                Ok(None) => {}
                Ok(Some(code)) => {
                    return Exit {
                        code,
                        reason: "a player wanted it".to_owned(),
                    };
                }
                Err(error) => log(&format!("game script error: {error}")),
            }
        }
        if let Some(exit) = runtime.exit() {
            return exit.clone();
        }
    }
}

/// Lua's `print`. A closed standard output is nothing to die of.
fn log(line: &str) {
    let _ = writeln!(io::stdout(), "[OMGSERVER] {line}");
}
