//! Stories over the whole system.

mod evening;
mod faults;
mod http;
mod routes;
