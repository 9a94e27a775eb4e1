//! A JSON text in a flat form: what a schema is checked against before any
//! [`Value`] is made.
//!
//! Guarantees: it holds what `serde_json` reads from the same text, down to
//! the last of several members of one name; it refuses every text that
//! `serde_json` refuses; in the long run reading allocates nothing.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

/// Longest text: positions in it and in what is decoded of it are 32 bits.
const MAX_TEXT_BYTES: usize = u32::MAX as usize / 2;
/// Objects up to this size are searched from their start.
pub(super) const MAX_UNSORTED_MEMBERS: usize = 8;
/// Largest buffers worth keeping; most documents take a few kilobytes.
const MAX_KEPT_BYTES: usize = 256 * 1024;

// With `arbitrary_precision` a number comes as an object of a secret name.
const _: () = assert!(
    size_of::<Number>() == 16,
    "serde_json's arbitrary_precision is not supported"
);

/// A document: its text, and where each part of it is.
#[derive(Debug, Default)]
pub(super) struct Instance<'t> {
    text: &'t str,
    root: Item,
    buffers: Lent,
    has_repeated_names: bool,
}

/// A value; what it has no room for is in the buffers of its instance.
#[derive(Debug, Default)]
pub(super) enum Item {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    /// Place of the decoded text.
    String(Span),
    /// Place in `items`.
    Array(Span),
    /// Place in `members`, which are sorted by name where they are more than
    /// [`MAX_UNSORTED_MEMBERS`].
    Object(Span),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Member {
    name: Span,
    pub(super) value: Item,
}

/// A place in a text or a buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    const fn new(start: usize, length: usize) -> Self {
        Self {
            start: start as u32,
            length: length as u32,
        }
    }

    const fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }

    pub(super) const fn length(self) -> usize {
        self.length as usize
    }
}

/// The parts of a document, each in one piece.
#[derive(Debug, Default)]
struct Buffers {
    items: Vec<Item>,
    members: Vec<Member>,
    /// Of arrays and objects that are still being read.
    open_items: Vec<Item>,
    open_members: Vec<Member>,
    /// Strings that are not in the text as they are.
    decoded: String,
}

impl Buffers {
    fn clear(&mut self) {
        self.items.clear();
        self.members.clear();
        self.open_items.clear();
        self.open_members.clear();
        self.decoded.clear();
    }

    const fn num_bytes(&self) -> usize {
        let items = self.items.capacity() + self.open_items.capacity();
        let members = self.members.capacity() + self.open_members.capacity();
        items * size_of::<Item>() + members * size_of::<Member>() + self.decoded.capacity()
    }
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Buffers that go back to their thread; boxed, because a document is moved a
/// few times on its way to its handler.
#[derive(Debug)]
struct Lent(Option<Box<Buffers>>);

impl Lent {
    /// Empty buffers, of the size that the last document needed.
    fn take() -> Self {
        let mut buffers = BUFFERS.take().unwrap_or_default();
        buffers.clear();
        Self(Some(buffers))
    }
}

impl Default for Lent {
    fn default() -> Self {
        Self(Some(Box::default()))
    }
}

impl Deref for Lent {
    type Target = Buffers;

    fn deref(&self) -> &Buffers {
        self.0.as_deref().expect("they go back at the end")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Buffers {
        self.0.as_deref_mut().expect("they go back at the end")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(buffers) = self.0.take() else {
            return;
        };
        if buffers.num_bytes() <= MAX_KEPT_BYTES {
            BUFFERS.set(Some(buffers));
        }
    }
}

impl<'t> Instance<'t> {
    /// Reads `text`; `None` when it is not JSON, or too long.
    pub(super) fn read(text: &'t str) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let mut instance = Self {
            text,
            root: Item::Null,
            buffers: Lent::take(),
            has_repeated_names: false,
        };
        let mut source = serde_json::Deserializer::from_str(text);
        instance.root = Reader(&mut instance).deserialize(&mut source).ok()?;
        source.end().ok()?;
        Some(instance)
    }

    /// The document as it came.
    pub(super) const fn text(&self) -> &'t str {
        self.text
    }

    /// Whether some object had two members of one name.
    pub(super) const fn has_repeated_names(&self) -> bool {
        self.has_repeated_names
    }

    pub(super) const fn root(&self) -> &Item {
        &self.root
    }

    /// Makes it a document that is one string.
    pub(super) fn set_string(&mut self, text: &str) {
        self.buffers.decoded.clear();
        self.root = Item::String(self.decoded(text));
    }

    pub(super) fn str(&self, span: Span) -> &str {
        let range = span.range();
        // As in `bytes`.
        match range.start.checked_sub(self.text.len()) {
            None => &self.text[range],
            Some(start) => &self.buffers.decoded[start..start + span.length()],
        }
    }

    pub(super) fn items(&self, span: Span) -> &[Item] {
        &self.buffers.items[span.range()]
    }

    pub(super) fn members(&self, span: Span) -> &[Member] {
        &self.buffers.members[span.range()]
    }

    pub(super) fn name(&self, member: &Member) -> &str {
        self.str(member.name)
    }

    /// The name in bytes, whose order is that of the text.
    pub(super) fn name_bytes(&self, member: &Member) -> &[u8] {
        self.bytes(member.name)
    }

    fn bytes(&self, span: Span) -> &[u8] {
        let range = span.range();
        // Positions behind the text are of what was decoded.
        match range.start.checked_sub(self.text.len()) {
            None => &self.text.as_bytes()[range],
            Some(start) => &self.buffers.decoded.as_bytes()[start..start + span.length()],
        }
    }

    /// What `serde_json` would have made of `item`.
    pub(super) fn value(&self, item: &Item) -> Value {
        match item {
            Item::Null => Value::Null,
            Item::Bool(boolean) => Value::Bool(*boolean),
            Item::Number(number) => Value::Number(number.clone()),
            Item::String(span) => Value::String(self.str(*span).to_owned()),
            Item::Array(span) => {
                let items = self.items(*span).iter();
                Value::Array(items.map(|item| self.value(item)).collect())
            }
            Item::Object(span) => {
                let members = self.members(*span).iter();
                let pair =
                    |member: &Member| (self.name(member).to_owned(), self.value(&member.value));
                Value::Object(members.map(pair).collect())
            }
        }
    }

    /// Place of a part of the text.
    fn borrowed(&self, part: &str) -> Span {
        let start = part.as_ptr().addr() - self.text.as_ptr().addr();
        Span::new(start, part.len())
    }

    /// Keeps a string that was decoded, which never is longer than its text.
    fn decoded(&mut self, string: &str) -> Span {
        let start = self.text.len() + self.buffers.decoded.len();
        self.buffers.decoded.push_str(string);
        Span::new(start, string.len())
    }

    /// Ends the array whose items are open from `start` on.
    fn close_array(&mut self, start: usize) -> Item {
        let Buffers {
            items, open_items, ..
        } = &mut *self.buffers;
        let first = items.len();
        items.extend(open_items.drain(start..));
        Item::Array(Span::new(first, items.len() - first))
    }

    /// Ends the object whose members are open from `start` on.
    fn close_object(&mut self, start: usize) -> Item {
        let mut open = std::mem::take(&mut self.buffers.open_members);
        let first = self.buffers.members.len();
        if self.is_plain(&open[start..]) {
            self.buffers.members.extend(open.drain(start..));
        } else {
            // Stable, so that of one name the last stays last.
            open[start..].sort_by(|one, two| self.name_bytes(one).cmp(self.name_bytes(two)));
            for member in open.drain(start..) {
                let last = self.buffers.members[first..].last();
                if last.is_some_and(|last| self.name_bytes(last) == self.name_bytes(&member)) {
                    self.has_repeated_names = true;
                    self.buffers.members.pop();
                }
                self.buffers.members.push(member);
            }
        }
        self.buffers.open_members = open;
        Item::Object(Span::new(first, self.buffers.members.len() - first))
    }

    /// Whether `members` are few and have different names, so that they may
    /// stay as they are.
    fn is_plain(&self, members: &[Member]) -> bool {
        let is_same = |one: &Member, two: &Member| {
            one.name.length == two.name.length && self.name_bytes(one) == self.name_bytes(two)
        };
        members.len() <= MAX_UNSORTED_MEMBERS
            && members.iter().enumerate().all(|(index, member)| {
                let mut earlier = members[..index].iter();
                !earlier.any(|other| is_same(other, member))
            })
    }
}

/// Reads one value into its instance.
struct Reader<'r, 't>(&'r mut Instance<'t>);

impl<'t> DeserializeSeed<'t> for Reader<'_, 't> {
    type Value = Item;

    fn deserialize<D: Deserializer<'t>>(self, source: D) -> Result<Item, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for Reader<'_, 't> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Item, E> {
        Ok(Item::Null)
    }

    fn visit_bool<E>(self, boolean: bool) -> Result<Item, E> {
        Ok(Item::Bool(boolean))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Item, E> {
        Ok(Item::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Item, E> {
        Ok(Number::from_f64(number).map_or(Item::Null, Item::Number))
    }

    fn visit_borrowed_str<E>(self, string: &'t str) -> Result<Item, E> {
        Ok(Item::String(self.0.borrowed(string)))
    }

    fn visit_str<E>(self, string: &str) -> Result<Item, E> {
        Ok(Item::String(self.0.decoded(string)))
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut items: A) -> Result<Item, A::Error> {
        let Self(instance) = self;
        let start = instance.buffers.open_items.len();
        while let Some(item) = items.next_element_seed(Reader(instance))? {
            instance.buffers.open_items.push(item);
        }
        Ok(instance.close_array(start))
    }

    fn visit_map<A: MapAccess<'t>>(self, mut members: A) -> Result<Item, A::Error> {
        let Self(instance) = self;
        let start = instance.buffers.open_members.len();
        while let Some(name) = members.next_key_seed(NameReader(instance))? {
            let value = members.next_value_seed(Reader(instance))?;
            instance.buffers.open_members.push(Member { name, value });
        }
        Ok(instance.close_object(start))
    }
}

/// Reads the name of a member.
struct NameReader<'r, 't>(&'r mut Instance<'t>);

impl<'t> DeserializeSeed<'t> for NameReader<'_, 't> {
    type Value = Span;

    fn deserialize<D: Deserializer<'t>>(self, source: D) -> Result<Span, D::Error> {
        source.deserialize_str(self)
    }
}

impl<'t> Visitor<'t> for NameReader<'_, 't> {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_borrowed_str<E>(self, name: &'t str) -> Result<Span, E> {
        Ok(self.0.borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Span, E> {
        Ok(self.0.decoded(name))
    }
}
