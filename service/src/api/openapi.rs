//! The OpenAPI document: what the table of routes says, in a form that other tools read.

use std::collections::BTreeMap;

use omgservers_protocol::{Call, ErrorBody};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Paths, RefOr, Required,
    ResponseBuilder,
};
use utoipa::{PartialSchema, ToSchema};

/// Where it is served.
pub const ROUTE: &str = "/service/v1/openapi.json";
const TOKEN: &str = "token";

#[derive(Default)]
pub(super) struct Document {
    paths: BTreeMap<&'static str, PathItem>,
    schemas: BTreeMap<String, RefOr<Schema>>,
}

impl Document {
    /// Adds an operation; `is_open` when it needs no token.
    pub(super) fn add<C: Call + ToSchema>(&mut self, is_open: bool)
    where
        C::Reply: ToSchema,
    {
        let mut found = Vec::new();
        C::schemas(&mut found);
        C::Reply::schemas(&mut found);
        ErrorBody::schemas(&mut found);
        for (name, schema) in found {
            let other = self.schemas.insert(name.clone(), schema.clone());
            assert!(
                other.is_none_or(|other| other == schema),
                "two types that are referred to have the name {name}"
            );
        }
        let (area, operation) = C::ROUTE
            .strip_prefix("/service/v1/entrypoint/")
            .and_then(|rest| rest.split_once("/request/"))
            .expect("every call is declared with an area and an operation");
        let kind = match operation {
            "upload-files-archive" => "multipart/form-data",
            _ => "application/json",
        };
        let body = RequestBodyBuilder::new()
            .content(kind, Content::new(Some(C::schema())))
            .required(Some(Required::True))
            .build();
        let reply = ResponseBuilder::new()
            .description("Done.")
            .content("application/json", Content::new(Some(C::Reply::schema())))
            .build();
        let refusal = ResponseBuilder::new()
            .description("Refused: `qualifier` is for programs, `message` for people.")
            .content("application/json", Content::new(Some(ErrorBody::schema())))
            .build();
        let mut operation = OperationBuilder::new()
            .tag(area)
            .operation_id(Some(format!("{area}.{operation}")))
            .summary(Some(operation.replace('-', " ")))
            .request_body(Some(body))
            .response("200", reply)
            .response("default", refusal);
        if !is_open {
            operation = operation.security(SecurityRequirement::new(TOKEN, Vec::<String>::new()));
        }
        self.paths.insert(C::ROUTE, PathItem::new(HttpMethod::Post, operation));
    }

    pub(super) fn finish(self) -> OpenApi {
        let info = InfoBuilder::new()
            .title("OMGSERVERS")
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some("A backend for authoritative game servers."))
            .license(Some(LicenseBuilder::new().name("MIT OR Apache-2.0").build()))
            .build();
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token of create-token, or a developer's API key."))
            .build();
        let components = ComponentsBuilder::new()
            .schemas_from_iter(self.schemas)
            .security_scheme(TOKEN, SecurityScheme::Http(scheme))
            .build();
        let mut paths = Paths::new();
        for (route, item) in self.paths {
            paths = utoipa::openapi::path::PathsBuilder::from(paths)
                .path(route, item)
                .build();
        }
        OpenApiBuilder::new()
            .info(info)
            .paths(paths)
            .components(Some(components))
            .build()
    }
}
