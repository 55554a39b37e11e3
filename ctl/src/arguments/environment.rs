//! Which installation is talked to.

use clap::Subcommand;

#[derive(Subcommand)]
#[command(rename_all = "camelCase")]
pub(crate) enum Environment {
    /// Forget everything that is stored
    Reset,
    /// Print what is stored, secrets included
    PrintCurrent,
    /// Print one value and nothing else, for scripts
    PrintVariable {
        /// Such as TENANT or DEVELOPER_TOKEN
        variable: String,
    },
    /// Talk to an installation by its address
    #[command(name = "useEnvironment")]
    Use {
        /// What to call it
        name: String,
        /// Such as http://localhost:8080
        service_url: String,
    },
    /// Talk to the public installation
    UsePublic,
    /// Talk to the installation that `omgctl up` runs here, as admin and support
    UseLocal {
        /// Its public port
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
}
