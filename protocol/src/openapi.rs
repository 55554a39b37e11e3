//! Schemas of replies that hold other types. A derived one does not know what it holds.

use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::call::Page;
use crate::developer::Details;
use crate::support::{CreatedPermissions, DeletedPermissions};

type Schemas = Vec<(String, RefOr<Schema>)>;

fn reference<T: ToSchema>() -> RefOr<Schema> {
    RefOr::Ref(Ref::from_schema_name(T::name()))
}

fn list<T: ToSchema>() -> RefOr<Schema> {
    ArrayBuilder::new().items(reference::<T>()).build().into()
}

fn nothing(object: ObjectBuilder) -> ObjectBuilder {
    object
}

fn next_page(object: ObjectBuilder) -> ObjectBuilder {
    let text = SchemaType::Array(vec![Type::String, Type::Null]);
    object.property("next_page_token", ObjectBuilder::new().schema_type(text))
}

macro_rules! holders {
    ($($name:ident.$field:ident = $held:ident, $more:ident;)*) => {$(
        impl<T: ToSchema> PartialSchema for $name<T> {
            fn schema() -> RefOr<Schema> {
                let field = stringify!($field);
                $more(ObjectBuilder::new().property(field, $held::<T>()).required(field)).into()
            }
        }

        impl<T: ToSchema> ToSchema for $name<T> {
            fn schemas(schemas: &mut Schemas) {
                schemas.push((T::name().into_owned(), T::schema()));
                T::schemas(schemas);
            }
        }
    )*};
}

holders!(
    Page.items = list, next_page;
    Details.details = reference, nothing;
    CreatedPermissions.created_permissions = list, nothing;
    DeletedPermissions.deleted_permissions = list, nothing;
);
