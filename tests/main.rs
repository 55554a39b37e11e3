//! Stories over the whole system.

mod evening;
mod http;
mod routes;
