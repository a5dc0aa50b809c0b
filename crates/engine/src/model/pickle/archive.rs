//! The zip archive of a torch file: torch compresses nothing, so a list of names and positions is all that is read of it.

use std::{collections::BTreeMap, io};

/// Reads so many bytes from a position on.
pub type ReadAt<'a> = &'a dyn Fn(u64, usize) -> io::Result<Vec<u8>>;

/// How an archive begins.
pub const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
const LOCAL_HEADER_BYTES: u64 = 30;
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const END: &[u8] = b"PK\x05\x06";
const END_BYTES: u64 = 22;
/// A comment may be behind the end.
const COMMENT_MAX_BYTES: u64 = 65_535;
const LARGE_END: &[u8] = b"PK\x06\x06";
const LARGE_END_BYTES: usize = 56;
const LARGE_END_LOCATOR: &[u8] = b"PK\x06\x07";
const LARGE_END_LOCATOR_BYTES: u64 = 20;
/// Marks a number that the extra field has in 64 bits.
const IN_EXTRA: u64 = 0xffff_ffff;
/// Longest list of entries, and longest pickle, bytes. Those of a Moondream 3 have about 100 kB.
const LIST_MAX_BYTES: u64 = 16 << 20;
const PICKLE_MAX_BYTES: u64 = 16 << 20;

/// An opened archive.
pub struct Archive<'a> {
    read: ReadAt<'a>,
    length: u64,
    /// Where the local header of each entry is, and its bytes.
    entries: BTreeMap<String, ByteRange>,
    /// What is before `data.pkl`: the name of the file when it was written.
    prefix: String,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

impl<'a> Archive<'a> {
    /// Reads the list of entries.
    pub fn open(read: ReadAt<'a>, length: u64) -> Result<Self, String> {
        let mut archive = Self {
            read,
            length,
            entries: BTreeMap::new(),
            prefix: String::new(),
        };
        let list = archive.list()?;
        if list.length > LIST_MAX_BYTES {
            return Err(format!("its list of entries has {} bytes", list.length));
        }
        let list = archive.bytes(list)?;
        let mut rest = list.as_slice();
        while !rest.is_empty() {
            let (name, entry, behind) = entry(rest)?;
            if archive.entries.insert(name.clone(), entry).is_some() {
                return Err(format!("it has two entries {name:?}"));
            }
            rest = behind;
        }
        let mut pickles = archive.entries.keys();
        let prefix = pickles.find_map(|name| name.strip_suffix("data.pkl"));
        archive.prefix = prefix
            .filter(|prefix| prefix.ends_with('/'))
            .ok_or("it has no data.pkl, so torch did not write it")?
            .to_owned();
        archive.check_byte_order()?;
        Ok(archive)
    }

    /// The instructions that make the tensors.
    pub fn pickle(&self) -> Result<Vec<u8>, String> {
        let range = self.content("data.pkl")?;
        if range.length > PICKLE_MAX_BYTES {
            return Err(format!("its data.pkl has {} bytes", range.length));
        }
        self.bytes(range)
    }

    /// Where the storage `key` is.
    pub fn storage(&self, key: &str) -> Result<ByteRange, String> {
        self.content(&format!("data/{key}"))
    }

    fn check_byte_order(&self) -> Result<(), String> {
        // Older versions of torch write none.
        let Ok(range) = self.content("byteorder") else {
            return Ok(());
        };
        match range.length <= 16 && self.bytes(range)? == b"little" {
            true => Ok(()),
            false => Err("its values are not little-endian".to_owned()),
        }
    }

    /// Where the content of an entry is.
    fn content(&self, name: &str) -> Result<ByteRange, String> {
        let entry = self.entries.get(&format!("{}{name}", self.prefix));
        let entry = *entry.ok_or_else(|| format!("the archive has no {name}"))?;
        let header = self.bytes(ByteRange {
            start: entry.start,
            length: LOCAL_HEADER_BYTES,
        })?;
        if !header.starts_with(LOCAL_HEADER) {
            return Err(format!("{name} is not where the archive says"));
        }
        let before = LOCAL_HEADER_BYTES + number(&header, 26, 2)? + number(&header, 28, 2)?;
        let range = ByteRange {
            start: entry.start + before,
            length: entry.length,
        };
        self.check(range)?;
        Ok(range)
    }

    fn check(&self, range: ByteRange) -> Result<(), String> {
        let end = range.start.checked_add(range.length);
        match end.is_some_and(|end| end <= self.length) {
            true => Ok(()),
            false => Err(format!(
                "it has {} bytes and names {} from byte {} on: it is cut off or damaged; copy or download it again",
                self.length, range.length, range.start
            )),
        }
    }

    fn bytes(&self, range: ByteRange) -> Result<Vec<u8>, String> {
        self.check(range)?;
        let read = (self.read)(range.start, range.length as usize);
        read.map_err(|error| error.to_string())
    }

    /// Where the list of entries is.
    fn list(&self) -> Result<ByteRange, String> {
        let tail = self.length.min(END_BYTES + COMMENT_MAX_BYTES);
        let tail_start = self.length - tail;
        let tail = self.bytes(ByteRange {
            start: tail_start,
            length: tail,
        })?;
        let mut windows = tail.windows(END_BYTES as usize);
        let at = windows.rposition(|window| window.starts_with(END));
        let at =
            at.ok_or("its list of entries is missing: it is cut off; copy or download it again")?;
        let end = &tail[at..];
        let list = ByteRange {
            length: number(end, 12, 4)?,
            start: number(end, 16, 4)?,
        };
        let locator = (tail_start + at as u64).checked_sub(LARGE_END_LOCATOR_BYTES);
        let locator = locator.map(|start| {
            self.bytes(ByteRange {
                start,
                length: LARGE_END_LOCATOR_BYTES,
            })
        });
        match locator.transpose()? {
            Some(locator) if locator.starts_with(LARGE_END_LOCATOR) => {
                let large = self.bytes(ByteRange {
                    start: number(&locator, 8, 8)?,
                    length: LARGE_END_BYTES as u64,
                })?;
                if !large.starts_with(LARGE_END) {
                    return Err("the end of its list of entries is damaged".to_owned());
                }
                Ok(ByteRange {
                    length: number(&large, 40, 8)?,
                    start: number(&large, 48, 8)?,
                })
            }
            _ => Ok(list),
        }
    }
}

/// A little-endian number of `count` bytes.
fn number(bytes: &[u8], at: usize, count: usize) -> Result<u64, String> {
    let rest = bytes.get(at..).unwrap_or_default();
    let bytes = rest.get(..count).ok_or("its list of entries is cut off")?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

/// The first entry of a list: its name, where its local header is and how many bytes it has; and what is behind it.
fn entry(list: &[u8]) -> Result<(String, ByteRange, &[u8]), String> {
    if !list.starts_with(ENTRY) {
        return Err("its list of entries is damaged".to_owned());
    }
    let [name_bytes, extra_bytes, comment_bytes] =
        [28, 30, 32].map(|at| number(list, at, 2).map(|count| count as usize));
    let (name_bytes, extra_bytes) = (name_bytes?, extra_bytes?);
    let cut_off = "its list of entries is cut off";
    let behind = list.get(ENTRY_BYTES..).ok_or(cut_off)?;
    let (name, behind) = behind.split_at_checked(name_bytes).ok_or(cut_off)?;
    let (extra, behind) = behind.split_at_checked(extra_bytes).ok_or(cut_off)?;
    let (_, behind) = behind.split_at_checked(comment_bytes?).ok_or(cut_off)?;
    let name = str::from_utf8(name).map_err(|_| "the name of an entry is not UTF-8")?;
    let mut large = large_numbers(extra);
    // In this order, each only when its short form has no room for it.
    let mut full = |short: u64| match short {
        IN_EXTRA => large.next().ok_or(cut_off),
        short => Ok(short),
    };
    let length = full(number(list, 24, 4)?)?;
    let stored = full(number(list, 20, 4)?)?;
    let start = full(number(list, 42, 4)?)?;
    let (is_encrypted, method) = (number(list, 8, 2)? & 1 == 1, number(list, 10, 2)?);
    if is_encrypted || method != 0 || stored != length {
        return Err(format!(
            "its entry {name:?} is compressed or encrypted; torch does neither"
        ));
    }
    Ok((name.to_owned(), ByteRange { start, length }, behind))
}

/// The 64-bit numbers of an extra field.
fn large_numbers(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut numbers: &[u8] = &[];
    while let (Ok(id), Ok(count)) = (number(extra, 0, 2), number(extra, 2, 2)) {
        let content = extra.get(4..).unwrap_or_default();
        let (content, behind) = content.split_at(content.len().min(count as usize));
        if id == 1 {
            numbers = content;
        }
        extra = behind;
    }
    let (numbers, _) = numbers.as_chunks::<8>();
    numbers.iter().map(|bytes| u64::from_le_bytes(*bytes))
}
