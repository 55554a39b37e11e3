//! Stories over the whole system.

mod evening;
mod faults;
mod http;
mod old_sdks;
mod routes;
