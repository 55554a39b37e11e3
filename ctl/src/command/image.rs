//! Images of game servers, made without an engine.

use serde_json::json;

use crate::archive;
use crate::arguments::Image;
use crate::failure::{Failure, Result};
use crate::output::Output;

pub(crate) fn run(output: Output, command: Image) -> Result {
    let Image::Pack {
        binary,
        tag,
        output: file,
        entrypoint,
        env,
    } = command;
    let name = binary.display();
    let program = std::fs::read(&binary).map_err(|cause| Failure::usage(format!("cannot read `{name}`: {cause}")))?;
    let entrypoint = match entrypoint {
        Some(entrypoint) => entrypoint,
        None => {
            let name = binary.file_name().and_then(|name| name.to_str());
            format!(
                "/{}",
                name.ok_or_else(|| Failure::usage(format!("`{name:?}` needs --entrypoint")))?
            )
        }
    };
    let image = archive::Image {
        program: &program,
        tag: &tag,
        entrypoint: &entrypoint,
        environment: &env,
    };
    let packed = archive::pack(&image).map_err(|wrong| Failure::usage(format!("`{name}`: {wrong:#}")))?;
    let mut new = file.clone().into_os_string();
    new.push(".new");
    // Renamed in place, so that whoever reads the old archive at this moment still gets all of it.
    std::fs::write(&new, &packed)
        .and_then(|()| std::fs::rename(&new, &file))
        .map_err(|cause| Failure::refused(format!("cannot write `{}`: {cause}", file.display())))?;
    let value = json!({"image": tag, "archive": file, "bytes": packed.len()});
    output.result(&value, |_| {
        format!(
            "Image {tag} was packed into {} ({} bytes).",
            file.display(),
            packed.len()
        )
    });
    Ok(())
}
