//! State as bytes: fixed-width little-endian numbers for snapshots and checksums, short ones for recordings.

/// The bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bytes are cut off or not of this format")
    }
}

impl std::error::Error for Broken {}

#[derive(Debug, Clone, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

macro_rules! fixed_width {
    ($($name:ident: $type:ty),*) => {
        impl Writer {
            $(pub(crate) fn $name(&mut self, value: $type) {
                self.0.extend_from_slice(&value.to_le_bytes());
            })*
        }
        impl Reader<'_> {
            $(pub(crate) fn $name(&mut self) -> Result<$type, Broken> {
                let (bytes, rest) = self.0.split_first_chunk().ok_or(Broken)?;
                self.0 = rest;
                Ok(<$type>::from_le_bytes(*bytes))
            })*
        }
    };
}

fixed_width!(u8: u8, i8: i8, u16: u16, u32: u32, i32: i32, u64: u64);

impl Writer {
    pub(crate) fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Seven bits a byte, the lowest first.
    pub(crate) fn short(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }
}

impl Reader<'_> {
    pub(crate) fn flag(&mut self) -> Result<bool, Broken> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Broken),
        }
    }

    pub(crate) fn short(&mut self) -> Result<u32, Broken> {
        let mut value = 0;
        for place in 0..5 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Broken)
    }

    pub(crate) fn end(&self) -> Result<(), Broken> {
        if self.0.is_empty() { Ok(()) } else { Err(Broken) }
    }
}

/// FNV-1a, 64 bits.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
