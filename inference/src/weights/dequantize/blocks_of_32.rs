//! Formats with one scale for 32 values. In those of 4 and 5 bits a byte holds
//! value i in its lower half and value i + 16 in its upper half.

use super::half_at;

/// scale f16, 32 x i8.
pub(in super::super) fn q8_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (value, byte) in values.iter_mut().zip(&block[2..]) {
        *value = scale * f32::from(byte.cast_signed());
    }
}

/// scale f16, 16 bytes of nibbles.
pub(in super::super) fn q4_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (index, value) in values.iter_mut().enumerate() {
        *value = scale * (f32::from(nibble(&block[2..], index)) - 8.0);
    }
}

/// scale f16, minimum f16, 16 bytes of nibbles.
pub(in super::super) fn q4_1(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (index, value) in values.iter_mut().enumerate() {
        *value = scale * f32::from(nibble(&block[4..], index)) + minimum;
    }
}

/// scale f16, u32 of fifth bits, 16 bytes of nibbles.
pub(in super::super) fn q5_0(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 0);
    for (index, value) in values.iter_mut().enumerate() {
        let five_bits = nibble(&block[6..], index) | fifth_bit(&block[2..6], index);
        *value = scale * (f32::from(five_bits) - 16.0);
    }
}

/// scale f16, minimum f16, u32 of fifth bits, 16 bytes of nibbles.
pub(in super::super) fn q5_1(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (index, value) in values.iter_mut().enumerate() {
        let five_bits = nibble(&block[8..], index) | fifth_bit(&block[4..8], index);
        *value = scale * f32::from(five_bits) + minimum;
    }
}

fn nibble(nibbles: &[u8], index: usize) -> u8 {
    if index < 16 {
        nibbles[index] & 15
    } else {
        nibbles[index - 16] >> 4
    }
}

fn fifth_bit(bits: &[u8], index: usize) -> u8 {
    (bits[index / 8] >> (index % 8) & 1) << 4
}
