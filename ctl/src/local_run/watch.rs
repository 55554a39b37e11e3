//! When a program has changed: it is another file than before, and has been the same one for two looks.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What tells one build from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Fingerprint {
    /// `None` while there is no such file, as in the middle of a build.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self {
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
        })
    }
}

pub(super) struct Watch {
    known: Option<Fingerprint>,
    last: Option<Fingerprint>,
}

impl Watch {
    pub(super) fn new(now: Option<Fingerprint>) -> Self {
        Self { known: now, last: now }
    }

    /// Whether there is a new program, complete as far as one can see.
    pub(super) fn look(&mut self, now: Option<Fingerprint>) -> bool {
        let is_new = now.is_some() && now != self.known && now == self.last;
        self.last = now;
        if is_new {
            self.known = now;
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_new_once_it_is_complete() {
        let build = |bytes| {
            Some(Fingerprint {
                inode: 1,
                bytes,
                modified: (0, 0),
            })
        };
        let mut watch = Watch::new(build(1));
        let looks = [
            (build(1), false),
            (None, false),
            (build(2), false),
            (build(3), false),
            (build(3), true),
            (build(3), false),
            (None, false),
            (build(3), false),
            (build(3), false),
            (build(1), false),
            (build(1), true),
        ];
        for (now, expected) in looks {
            assert_eq!(watch.look(now), expected, "{now:?}");
        }
    }
}
