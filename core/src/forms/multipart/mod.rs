//! `multipart/form-data` as a stream of parts (RFC 7578).
//!
//! Guarantee: no more of a body is held than one of its chunks and one part's
//! header lines, whatever the client sends. Own code because multer reads
//! whatever has arrived into memory, bounds neither preamble nor header lines
//! nor parts, and takes parameters out of quoted file names.

mod head;
mod parser;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};

use self::head::PartHead;
use self::parser::{Parser, Step};
use super::FormLimits;
use crate::body::Body;
use crate::error::FormError;
use crate::limits::Reject;

/// The parts of a form, one after the other.
///
/// ```
/// use justapi_core::{FormError, Request};
///
/// async fn upload(request: Request) -> Result<String, FormError> {
///     let mut form = request.multipart()?;
///     let mut num_bytes = 0;
///     while let Some(mut part) = form.next_part().await? {
///         while let Some(chunk) = part.chunk().await? {
///             num_bytes += chunk.len();
///         }
///     }
///     Ok(format!("{num_bytes} bytes\n"))
/// }
/// ```
#[derive(Debug)]
pub struct Multipart {
    body: Body,
    parser: Parser,
    limits: FormLimits,
    num_parts: usize,
    /// Bytes that the current part may still have.
    part: Allowance,
    in_part: bool,
}

impl Multipart {
    pub(super) fn new(body: Body, boundary: &[u8], limits: FormLimits) -> Self {
        Self {
            body,
            parser: Parser::new(boundary, limits.max_header_bytes),
            limits,
            num_parts: 0,
            part: Allowance::default(),
            in_part: false,
        }
    }

    /// Replaces the server's limits.
    #[must_use]
    pub fn with_limits(mut self, limits: FormLimits) -> Self {
        self.parser.set_max_header_bytes(limits.max_header_bytes);
        self.limits = limits;
        self
    }

    /// The next part; `None` behind the last one.
    ///
    /// What was not read of the part before is read and dropped, within its
    /// limit. Cancel safe.
    ///
    /// # Errors
    /// [`FormError`]; the form cannot be read further then.
    pub async fn next_part(&mut self) -> Result<Option<Part<'_>>, FormError> {
        loop {
            match self.step().await? {
                Step::Part(head) => {
                    return Ok(Some(Part {
                        form: self,
                        head: *head,
                    }));
                }
                Step::End => return Ok(None),
                Step::Data(_) | Step::PartEnd | Step::NeedMore => {}
            }
        }
    }

    /// The next step that the bytes allow, after reading more if need be.
    async fn step(&mut self) -> Result<Step, FormError> {
        loop {
            let step = self.parser.next()?;
            match &step {
                Step::NeedMore => match self.body.chunk().await {
                    Some(chunk) => self.parser.push(chunk?),
                    None => self.parser.finish()?,
                },
                Step::Part(head) => {
                    self.admit(head)?;
                    return Ok(step);
                }
                Step::Data(data) => {
                    self.part.take(data.len())?;
                    return Ok(step);
                }
                Step::PartEnd => {
                    self.in_part = false;
                    return Ok(step);
                }
                Step::End => return Ok(step),
            }
        }
    }

    fn admit(&mut self, head: &PartHead) -> Result<(), FormError> {
        self.num_parts += 1;
        let limits = &self.limits;
        if self.num_parts > limits.max_fields {
            return Err(FormError::limit(
                Reject::FormFields,
                "server.limits.form_fields",
                limits.max_fields as u64,
            ));
        }
        self.part = if head.file_name.is_some() {
            Allowance::new(
                Reject::FormFileBytes,
                "server.limits.form_file",
                limits.max_file_bytes,
            )
        } else {
            let limit = limits.max_field_bytes as u64;
            Allowance::new(Reject::FormFieldBytes, "server.limits.form_field", limit)
        };
        self.in_part = true;
        Ok(())
    }
}

/// One part of a form: a field or a file.
#[derive(Debug)]
pub struct Part<'a> {
    form: &'a mut Multipart,
    head: PartHead,
}

impl Part<'_> {
    /// Name of the field, as the client wrote it.
    pub fn name(&self) -> &str {
        &self.head.name
    }

    /// Name of the file, without any folder; `None` for a plain field.
    ///
    /// The client chose it: it may be empty, or the name of a device.
    pub fn file_name(&self) -> Option<&str> {
        self.head.file_name.as_deref()
    }

    /// `Content-Type` of the part, as the client wrote it.
    pub fn content_type(&self) -> Option<&str> {
        self.head.content_type.as_deref()
    }

    /// The next piece of the part's data; `None` at its end. Cancel safe.
    ///
    /// # Errors
    /// [`FormError`]; the form cannot be read further then.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, FormError> {
        if !self.form.in_part {
            return Ok(None);
        }
        match self.form.step().await? {
            Step::Data(data) => Ok(Some(data)),
            _ => Ok(None),
        }
    }

    /// Reads the part to its end; for a file, at most `max_field_bytes` too.
    ///
    /// # Errors
    /// As [`Self::chunk`], and [`FormError::Limit`].
    pub async fn bytes(mut self) -> Result<Bytes, FormError> {
        let limit = self.form.limits.max_field_bytes;
        let Some(first) = self.chunk().await? else {
            return Ok(Bytes::new());
        };
        let mut all = BytesMut::new();
        let mut next = Some(first);
        while let Some(data) = next {
            if all.len() + data.len() > limit {
                let reject = Reject::FormFieldBytes;
                return Err(FormError::limit(
                    reject,
                    "server.limits.form_field",
                    limit as u64,
                ));
            }
            next = self.chunk().await?;
            if all.is_empty() && next.is_none() {
                return Ok(data);
            }
            all.extend_from_slice(&data);
        }
        Ok(all.freeze())
    }

    /// Reads the part to its end as UTF-8 text, like [`Self::bytes`].
    ///
    /// # Errors
    /// As [`Self::bytes`], and [`FormError::Malformed`] for other bytes.
    pub async fn text(self) -> Result<String, FormError> {
        let bytes = self.bytes().await?;
        String::from_utf8(bytes.into()).map_err(|_| FormError::Malformed {
            reason: "a field is not UTF-8",
        })
    }
}

/// What is left of a part's limit.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    left: u64,
    reject: Reject,
    name: &'static str,
    limit: u64,
}

impl Allowance {
    const fn new(reject: Reject, name: &'static str, limit: u64) -> Self {
        Self {
            left: limit,
            reject,
            name,
            limit,
        }
    }

    fn take(&mut self, num_bytes: usize) -> Result<(), FormError> {
        self.left = self
            .left
            .checked_sub(num_bytes as u64)
            .ok_or(FormError::limit(self.reject, self.name, self.limit))?;
        Ok(())
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self::new(Reject::FormFieldBytes, "server.limits.form_field", 0)
    }
}
