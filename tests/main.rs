//! Stories over the whole system.

mod browser;
mod commands;
mod configuration;
mod connections;
mod control;
mod docs;
mod durability;
mod evening;
mod faults;
mod fuzz;
mod growth;
mod http;
mod instances;
mod limits;
mod mail;
mod old_sdks;
mod openapi;
mod routes;
mod telemetry;
mod wrong_input;
