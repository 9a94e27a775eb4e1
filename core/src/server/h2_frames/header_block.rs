//! Header blocks of HTTP/2 as far as h2 leaves them unchecked: whether they
//! can be decoded at all, and whether they hold pseudo-headers (RFC 7541).
//!
//! Guarantee: a block is told from a wrong one as it comes, wherever it is cut,
//! and no text is decoded or kept: of an entry of the dynamic table only its
//! lengths are known, and whether its name is that of a pseudo-header.

use std::collections::VecDeque;

/// Size of the dynamic table, which this server leaves as it is
/// (RFC 9113 §6.5.2).
const MAX_TABLE_BYTES: u32 = 4096;
/// What an entry takes besides its texts (RFC 7541 §4.1).
const ENTRY_BYTES: u32 = 32;
/// Bytes of an integer behind its first: as many as h2 takes, which is more
/// than any length needs.
const MAX_INTEGER_BYTES: u8 = 4;
/// Names at the start of the static table that are those of pseudo-headers.
const NUM_STATIC_PSEUDO: u32 = 14;
/// Length of each name of the static table (RFC 7541 Appendix A).
const STATIC_NAME_BYTES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27, 3, 5, 13, 13, 19, 16, 16, 14,
    16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17, 13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10,
    25, 17, 10, 4, 3, 16,
];

/// A block cannot be decoded: the connection ends with `COMPRESSION_ERROR`
/// (RFC 9113 §4.3).
#[derive(Debug, PartialEq, Eq)]
pub(in crate::server) struct Invalid;

/// Follows the header blocks of a connection.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(in crate::server) struct BlockWalk {
    table: DynamicTable,
    step: Step,
    field: Field,
    /// Of an integer: what has come of it, and in how many bytes.
    integer: (u32, u8),
    text: Text,
    /// No field of the block has come: the table may change its size.
    may_resize: bool,
    has_pseudo: bool,
}

/// What the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The first of a field, or nothing more.
    Field,
    /// More of an integer.
    Integer(Meaning),
    /// The first of a text.
    Length(Part),
    /// More of a text.
    Text(Part),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Indexed,
    Name,
    TableSize,
    Length(Part),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Name,
    Value,
}

/// What has come of a literal field.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Field {
    is_kept: bool,
    name_bytes: u32,
    is_pseudo: bool,
}

/// What has come of a text.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
struct Text {
    /// Bytes to come, as sent.
    left: u32,
    /// Bytes that have come, decoded.
    length: u32,
    is_coded: bool,
    /// Bits that have come of symbols that are not complete, and their number.
    bits: u64,
    num_bits: u32,
    starts_with_colon: bool,
}

impl BlockWalk {
    pub(in crate::server) const fn new() -> Self {
        Self {
            table: DynamicTable {
                entries: VecDeque::new(),
                size: 0,
                max_size: MAX_TABLE_BYTES,
            },
            step: Step::Field,
            field: Field {
                is_kept: false,
                name_bytes: 0,
                is_pseudo: false,
            },
            integer: (0, 0),
            text: Text {
                left: 0,
                length: 0,
                is_coded: false,
                bits: 0,
                num_bits: 0,
                starts_with_colon: false,
            },
            may_resize: true,
            has_pseudo: false,
        }
    }

    /// Begins a block; what was left of another is forgotten.
    pub(in crate::server) const fn begin(&mut self) {
        self.step = Step::Field;
        self.may_resize = true;
        self.has_pseudo = false;
    }

    /// Whether a field of the block so far is a pseudo-header.
    pub(in crate::server) const fn has_pseudo(&self) -> bool {
        self.has_pseudo
    }

    /// Whether the block may end here.
    pub(in crate::server) fn end(&self) -> Result<(), Invalid> {
        check(self.step == Step::Field)
    }

    /// Reads more of the block.
    pub(in crate::server) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Invalid> {
        while let [first, rest @ ..] = bytes {
            bytes = match self.step {
                Step::Field => {
                    self.begin_field(*first)?;
                    rest
                }
                Step::Integer(meaning) => {
                    self.continue_integer(*first, meaning)?;
                    rest
                }
                Step::Length(part) => {
                    self.text = Text {
                        is_coded: first & 0x80 != 0,
                        ..Text::default()
                    };
                    self.begin_integer(*first, 7, Meaning::Length(part))?;
                    rest
                }
                Step::Text(part) => {
                    let length = bytes.len().min(self.text.left as usize);
                    let (text, rest) = bytes.split_at(length);
                    self.text.read(text)?;
                    if self.text.left == 0 {
                        self.end_text(part)?;
                    }
                    rest
                }
            };
        }
        Ok(())
    }

    fn begin_field(&mut self, first: u8) -> Result<(), Invalid> {
        let (prefix_bits, meaning) = match first {
            0x80.. => (7, Meaning::Indexed),
            0x40.. => (6, Meaning::Name),
            0x20.. => (5, Meaning::TableSize),
            _ => (4, Meaning::Name),
        };
        if meaning == Meaning::TableSize {
            check(self.may_resize)?;
        } else {
            self.may_resize = false;
        }
        self.field.is_kept = first & 0xc0 == 0x40;
        self.begin_integer(first, prefix_bits, meaning)
    }

    fn begin_integer(&mut self, first: u8, bits: u32, meaning: Meaning) -> Result<(), Invalid> {
        let most = (1 << bits) - 1;
        let value = u32::from(first) & most;
        if value < most {
            return self.end_integer(value, meaning);
        }
        self.integer = (value, 0);
        self.step = Step::Integer(meaning);
        Ok(())
    }

    fn continue_integer(&mut self, byte: u8, meaning: Meaning) -> Result<(), Invalid> {
        let (value, num_bytes) = self.integer;
        let value = value + (u32::from(byte & 0x7f) << (7 * num_bytes));
        if byte & 0x80 == 0 {
            return self.end_integer(value, meaning);
        }
        self.integer = (value, num_bytes + 1);
        check(num_bytes + 1 < MAX_INTEGER_BYTES)
    }

    fn end_integer(&mut self, value: u32, meaning: Meaning) -> Result<(), Invalid> {
        match meaning {
            Meaning::Indexed => {
                let (_, is_pseudo) = self.table.name(value).ok_or(Invalid)?;
                self.has_pseudo |= is_pseudo;
                self.step = Step::Field;
            }
            Meaning::Name if value == 0 => self.step = Step::Length(Part::Name),
            Meaning::Name => {
                let (length, is_pseudo) = self.table.name(value).ok_or(Invalid)?;
                self.end_name(length, is_pseudo);
            }
            Meaning::TableSize => {
                check(value <= MAX_TABLE_BYTES)?;
                self.table.resize(value);
                self.step = Step::Field;
            }
            Meaning::Length(part) => {
                self.text.left = value;
                self.step = Step::Text(part);
                if value == 0 {
                    self.end_text(part)?;
                }
            }
        }
        Ok(())
    }

    fn end_text(&mut self, part: Part) -> Result<(), Invalid> {
        self.text.end()?;
        match part {
            Part::Name => self.end_name(self.text.length, self.text.starts_with_colon),
            Part::Value => {
                if self.field.is_kept {
                    self.table.insert(Entry {
                        name_bytes: self.field.name_bytes,
                        value_bytes: self.text.length,
                        is_pseudo: self.field.is_pseudo,
                    });
                }
                self.step = Step::Field;
            }
        }
        Ok(())
    }

    const fn end_name(&mut self, length: u32, is_pseudo: bool) {
        self.field.name_bytes = length;
        self.field.is_pseudo = is_pseudo;
        self.has_pseudo |= is_pseudo;
        self.step = Step::Length(Part::Value);
    }
}

const fn check(is_so: bool) -> Result<(), Invalid> {
    if is_so { Ok(()) } else { Err(Invalid) }
}

impl Text {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Invalid> {
        let num_bytes = u32::try_from(bytes.len()).expect("it is at most what is left");
        self.left -= num_bytes;
        if !self.is_coded {
            self.starts_with_colon |= self.length == 0 && bytes[0] == b':';
            self.length += num_bytes;
            return Ok(());
        }
        for byte in bytes {
            self.bits = self.bits << 8 | u64::from(*byte);
            self.num_bits += 8;
            self.take_symbols()?;
        }
        Ok(())
    }

    /// Takes the symbols that are complete.
    fn take_symbols(&mut self) -> Result<(), Invalid> {
        loop {
            // The next bits at the upper end, zeros where none have come: no
            // shorter code begins with them than with what will come.
            let next = (self.bits << (64 - self.num_bits) >> 32) as u32;
            let num_bits = code_bits(next).ok_or(Invalid)?;
            if num_bits > self.num_bits {
                return Ok(());
            }
            self.starts_with_colon |= self.length == 0 && num_bits == 7 && next >> 25 == COLON;
            self.length += 1;
            self.num_bits -= num_bits;
            self.bits &= (1 << self.num_bits) - 1;
            if self.num_bits == 0 {
                return Ok(());
            }
        }
    }

    /// Fewer than eight bits may be left, all ones (RFC 7541 §5.2).
    fn end(&self) -> Result<(), Invalid> {
        check(self.num_bits < 8 && self.bits == (1 << self.num_bits) - 1)
    }
}

/// The code of a colon, of 7 bits.
const COLON: u32 = 0x5c;
/// Number of symbols with a code of so many bits (RFC 7541 Appendix B): codes
/// of a length follow each other, those that are longer come after them. The
/// last, 30 ones, is no symbol of a text.
const NUM_CODES: [(u32, u32); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 3),
];
/// Bits of a code, and the first 32 bits that no code so long begins with.
const CODES: [(u32, u32); 21] = codes();

const fn codes() -> [(u32, u32); 21] {
    let mut codes = NUM_CODES;
    let mut end = 0;
    let mut index = 0;
    while index < codes.len() {
        let (num_bits, num_codes) = codes[index];
        end += num_codes << (32 - num_bits);
        codes[index].1 = end;
        index += 1;
    }
    codes
}

/// Length of the code that these bits begin with; none for the end of a text.
fn code_bits(bits: u32) -> Option<u32> {
    let found = CODES.iter().find(|(_, end)| bits < *end)?;
    Some(found.0)
}

/// The dynamic table of the peer's fields, without their texts.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct DynamicTable {
    /// The newest first.
    entries: VecDeque<Entry>,
    size: u32,
    max_size: u32,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Entry {
    name_bytes: u32,
    value_bytes: u32,
    is_pseudo: bool,
}

impl Entry {
    const fn size(&self) -> u32 {
        // Both are at most what the decoded integers of a block can say.
        self.name_bytes
            .saturating_add(self.value_bytes)
            .saturating_add(ENTRY_BYTES)
    }
}

impl DynamicTable {
    /// Length of the name at `index` of both tables, and whether it is that of
    /// a pseudo-header.
    fn name(&self, index: u32) -> Option<(u32, bool)> {
        let before = index.checked_sub(1)? as usize;
        if let Some(length) = STATIC_NAME_BYTES.get(before) {
            return Some((u32::from(*length), index <= NUM_STATIC_PSEUDO));
        }
        let entry = self.entries.get(before - STATIC_NAME_BYTES.len())?;
        Some((entry.name_bytes, entry.is_pseudo))
    }

    fn insert(&mut self, entry: Entry) {
        let size = entry.size();
        self.shrink(self.max_size.saturating_sub(size));
        // One that is larger than the table empties it (RFC 7541 §4.4).
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front(entry);
        }
    }

    fn resize(&mut self, size: u32) {
        self.max_size = size;
        self.shrink(size);
    }

    /// Drops the oldest entries until so many bytes are left, or less.
    fn shrink(&mut self, size: u32) {
        while self.size > size
            && let Some(entry) = self.entries.pop_back()
        {
            self.size -= entry.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Length of each symbol's code (RFC 7541 Appendix B): codes count up by
    /// length, then by symbol.
    const CODE_LENGTHS: [u8; 256] = [
        13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30,
        28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
        5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5,
        7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22,
        22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23,
        22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22,
        21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26,
        26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20,
        24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27,
        27, 28, 27, 27, 27, 27, 27, 26,
    ];

    fn coded(text: &[u8]) -> Vec<u8> {
        let mut symbols: Vec<u8> = (0..=255).collect();
        symbols.sort_by_key(|symbol| CODE_LENGTHS[usize::from(*symbol)]);
        let (mut code, mut last) = (0u32, 5);
        let mut codes = [0; 256];
        for symbol in symbols {
            let length = CODE_LENGTHS[usize::from(symbol)];
            code <<= length - last;
            last = length;
            codes[usize::from(symbol)] = code;
            code += 1;
        }
        let bits = text.iter().flat_map(|symbol| {
            let code = codes[usize::from(*symbol)];
            let length = CODE_LENGTHS[usize::from(*symbol)];
            (0..length).rev().map(move |bit| code >> bit & 1 == 1)
        });
        let bits: Vec<bool> = bits.collect();
        let byte = |bits: &[bool]| {
            let bit = |at| bits.get(at).copied().unwrap_or(true);
            (0..8).fold(0, |byte, at| byte << 1 | u8::from(bit(at)))
        };
        bits.chunks(8).map(byte).collect()
    }

    fn integer(first: u8, bits: u32, mut value: usize) -> Vec<u8> {
        let most = (1 << bits) - 1;
        if value < most {
            return vec![first | u8::try_from(value).unwrap()];
        }
        let mut bytes = vec![first | u8::try_from(most).unwrap()];
        value -= most;
        while value >= 128 {
            bytes.push(u8::try_from(value % 128).unwrap() | 128);
            value /= 128;
        }
        bytes.push(u8::try_from(value).unwrap());
        bytes
    }

    fn text(bytes: &[u8], is_coded: bool) -> Vec<u8> {
        if !is_coded {
            return [integer(0, 7, bytes.len()), bytes.to_vec()].concat();
        }
        let coded = coded(bytes);
        [integer(128, 7, coded.len()), coded].concat()
    }

    const STATIC_NAMES: &[(usize, &[u8])] = &[
        (1, b":authority"),
        (4, b":path"),
        (14, b":status"),
        (15, b"accept-charset"),
        (36, b"expires"),
        (56, b"strict-transport-security"),
        (61, b"www-authenticate"),
    ];

    /// What an encoder may do next; numbers are taken modulo what there is.
    #[derive(Debug, Clone)]
    enum Choice {
        Indexed(usize),
        Literal {
            kind: usize,
            /// Of both tables, or a new one.
            name: Option<usize>,
            new_name: Vec<u8>,
            value: Vec<u8>,
            coded: (bool, bool),
        },
        Resize(usize),
        EndBlock,
    }

    fn choice() -> impl Strategy<Value = Choice> {
        let bytes = |length| prop::collection::vec(any::<u8>(), 0..length);
        let name = prop_oneof![
            bytes(40),
            Just(b":path".to_vec()),
            Just(b":".to_vec()),
            Just(b"x:".to_vec()),
        ];
        prop_oneof![
            3 => any::<usize>().prop_map(Choice::Indexed),
            6 => (0..3usize, any::<Option<usize>>(), name, bytes(900), any::<(bool, bool)>())
                .prop_map(|(kind, name, new_name, value, coded)| Choice::Literal {
                    kind,
                    name,
                    new_name,
                    value,
                    coded,
                }),
            1 => (0..=4096usize).prop_map(Choice::Resize),
            2 => Just(Choice::EndBlock),
        ]
    }

    /// An encoder with whole texts in its table.
    #[derive(Default)]
    struct Encoder {
        table: Vec<(Vec<u8>, Vec<u8>)>,
        max_size: usize,
    }

    impl Encoder {
        fn evict(&mut self) {
            let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + 32;
            while self.table.iter().map(size).sum::<usize>() > self.max_size {
                self.table.pop();
            }
        }

        /// Index and name of an entry that there is.
        fn entry(&self, at: usize) -> (usize, Vec<u8>) {
            let at = at % (STATIC_NAMES.len() + self.table.len());
            match STATIC_NAMES.get(at) {
                Some((index, name)) => (*index, name.to_vec()),
                None => {
                    let at = at - STATIC_NAMES.len();
                    (62 + at, self.table[at].0.clone())
                }
            }
        }

        /// The bytes of a field, and whether it is a pseudo-header.
        fn encode(&mut self, choice: &Choice) -> (Vec<u8>, bool) {
            match choice {
                Choice::Indexed(at) => {
                    let (index, name) = self.entry(*at);
                    (integer(0x80, 7, index), name.first() == Some(&b':'))
                }
                Choice::Literal {
                    kind,
                    name,
                    new_name,
                    value,
                    coded,
                } => {
                    let (index, name) = name.map_or((0, new_name.clone()), |at| self.entry(at));
                    let (first, bits) = [(0x40, 6), (0, 4), (0x10, 4)][*kind];
                    let mut bytes = integer(first, bits, index);
                    if index == 0 {
                        bytes.extend(text(&name, coded.0));
                    }
                    bytes.extend(text(value, coded.1));
                    let is_pseudo = name.first() == Some(&b':');
                    if *kind == 0 {
                        self.table.insert(0, (name, value.clone()));
                        self.evict();
                    }
                    (bytes, is_pseudo)
                }
                Choice::Resize(size) => {
                    self.max_size = *size;
                    self.evict();
                    (integer(0x20, 5, *size), false)
                }
                Choice::EndBlock => (Vec::new(), false),
            }
        }
    }

    fn read(blocks: &[&[u8]]) -> Result<bool, Invalid> {
        let mut walk = BlockWalk::new();
        for block in blocks {
            walk.begin();
            walk.read(block)?;
            walk.end()?;
        }
        Ok(walk.has_pseudo())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]
        /// At any cut the walk knows as much of the table as who keeps it.
        #[test]
        fn a_walk_agrees_with_an_encoder(
            choices in prop::collection::vec(choice(), 1..60),
            cut in 1..50usize,
        ) {
            let mut encoder = Encoder { max_size: 4096, ..Encoder::default() };
            let mut walk = BlockWalk::new();
            let (mut has_field, mut has_pseudo) = (false, false);
            for choice in &choices {
                if matches!(choice, Choice::EndBlock) {
                    walk.begin();
                    (has_field, has_pseudo) = (false, false);
                }
                if matches!(choice, Choice::Resize(_)) && has_field {
                    continue;
                }
                has_field |= matches!(choice, Choice::Indexed(_) | Choice::Literal { .. });
                let (bytes, is_pseudo) = encoder.encode(choice);
                has_pseudo |= is_pseudo;
                for part in bytes.chunks(cut) {
                    prop_assert_eq!(walk.read(part), Ok(()));
                }
                prop_assert_eq!(walk.end(), Ok(()));
                prop_assert_eq!(walk.has_pseudo(), has_pseudo);
                prop_assert_eq!(walk.table.entries.len(), encoder.table.len());
                for (kept, (name, value)) in walk.table.entries.iter().zip(&encoder.table) {
                    prop_assert_eq!(kept.name_bytes as usize, name.len());
                    prop_assert_eq!(kept.value_bytes as usize, value.len());
                    prop_assert_eq!(kept.is_pseudo, name.first() == Some(&b':'));
                }
                let mut reader = walk.clone();
                let beyond = integer(0x80, 7, 62 + encoder.table.len());
                prop_assert_eq!(reader.read(&beyond), Err(Invalid));
            }
        }

        #[test]
        fn no_bytes_can_hurt(bytes in prop::collection::vec(any::<u8>(), 0..400), cut in 1..40usize) {
            let whole = BlockWalk::new().read(&bytes);
            let mut walk = BlockWalk::new();
            let in_parts = bytes.chunks(cut).try_for_each(|part| walk.read(part));
            prop_assert_eq!(whole, in_parts);
            prop_assert!(walk.table.size <= MAX_TABLE_BYTES);
            prop_assert!(walk.table.entries.len() <= (MAX_TABLE_BYTES / ENTRY_BYTES) as usize);
        }
    }

    #[test]
    fn every_symbol_has_its_code() {
        for symbol in 0..=255u8 {
            let block = [&[0, 1, b'x'][..], &text(&[symbol; 9], true)].concat();
            assert_eq!(read(&[&block]), Ok(false), "{symbol}");
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_invalid() {
        for block in [
            // Index 0, and one behind both tables.
            &[0x80][..],
            &[0xbe],
            &[0x7e, 1, b'y'],
            // Too many bytes of an integer.
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0],
            // A table that is too large, and a change behind a field.
            &[0x3f, 0xe2, 0x1f],
            &[0x82, 0x20],
            // Cut short.
            &[0xff],
            &[0, 1],
            &[0, 1, b'x'],
            &[0, 1, b'x', 2, b'y'],
            // Padding of zeros, of a byte, and the code of the end.
            &[0, 1, b'x', 0x81, 0xf4],
            &[0, 1, b'x', 0x81, 0xff],
            &[0, 1, b'x', 0x82, 0xf5, 0xff],
            &[0, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0, 1, b'x', 0x85, 0xf5, 0xff, 0xff, 0xff, 0xfe],
        ] {
            assert_eq!(read(&[block]), Err(Invalid), "{block:x?}");
        }
    }
}
