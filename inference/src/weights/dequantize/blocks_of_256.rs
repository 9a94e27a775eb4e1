//! Formats with a scale for 256 values, and within them smaller scales for
//! groups of 16 or 32.

use super::half_at;

/// 16 bytes (scale in the lower half, minimum in the upper), 64 bytes of
/// 2 bits, scale f16, scale of minima f16. Each 32 bytes hold 128 values:
/// bits 0-1 the first 32, bits 2-3 the next.
pub(in super::super) fn q2_k(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 80), half_at(block, 82));
    for (index, value) in values.iter_mut().enumerate() {
        let group = block[index / 16];
        let byte = block[16 + index / 128 * 32 + index % 32];
        let two_bits = byte >> (index % 128 / 32 * 2) & 3;
        let (scale, minimum) = (
            scale * f32::from(group & 15),
            minimum * f32::from(group >> 4),
        );
        *value = scale * f32::from(two_bits) - minimum;
    }
}

/// 32 bytes of third bits (bit b of byte i belongs to value 32 b + i), 64
/// bytes of 2 bits as in `q2_k`, 12 bytes of scales, scale f16.
pub(in super::super) fn q3_k(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 108);
    let scales = &block[96..108];
    for (index, value) in values.iter_mut().enumerate() {
        let byte = block[32 + index / 128 * 32 + index % 32];
        let two_bits = byte >> (index % 128 / 32 * 2) & 3;
        let third_bit = (block[index % 32] >> (index / 32) & 1) << 2;
        let scale = scale * (f32::from(q3_k_scale(scales, index / 16)) - 32.0);
        *value = scale * (f32::from(two_bits | third_bit) - 4.0);
    }
}

/// scale f16, scale of minima f16, 12 bytes of scales and minima, 128 bytes of
/// nibbles. Each 32 bytes hold 64 values: the lower halves the first 32.
pub(in super::super) fn q4_k(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (index, value) in values.iter_mut().enumerate() {
        let byte = block[16 + index / 64 * 32 + index % 32];
        let four_bits = byte >> (index % 64 / 32 * 4) & 15;
        let (group_scale, group_minimum) = scale_and_minimum(&block[4..16], index / 32);
        *value = scale * f32::from(group_scale) * f32::from(four_bits)
            - minimum * f32::from(group_minimum);
    }
}

/// As `q4_k`, with 32 bytes of fifth bits before the nibbles: bit b of byte i
/// belongs to value 32 b + i.
pub(in super::super) fn q5_k(block: &[u8], values: &mut [f32]) {
    let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
    for (index, value) in values.iter_mut().enumerate() {
        let byte = block[48 + index / 64 * 32 + index % 32];
        let four_bits = byte >> (index % 64 / 32 * 4) & 15;
        let fifth_bit = (block[16 + index % 32] >> (index / 32) & 1) << 4;
        let (group_scale, group_minimum) = scale_and_minimum(&block[4..16], index / 32);
        *value = scale * f32::from(group_scale) * f32::from(four_bits | fifth_bit)
            - minimum * f32::from(group_minimum);
    }
}

/// 128 bytes of nibbles, 64 bytes of upper 2 bits, 16 x i8 of scales, scale
/// f16. Of 128 values, the first 64 are the lower halves of 64 bytes and the
/// rest the upper; the upper bits are ordered as in `q2_k`.
pub(in super::super) fn q6_k(block: &[u8], values: &mut [f32]) {
    let scale = half_at(block, 208);
    for (index, value) in values.iter_mut().enumerate() {
        let byte = block[index / 128 * 64 + index % 64];
        let four_bits = byte >> (index % 128 / 64 * 4) & 15;
        let upper = block[128 + index / 128 * 32 + index % 32];
        let two_bits = (upper >> (index % 128 / 32 * 2) & 3) << 4;
        let scale = scale * f32::from(block[192 + index / 16].cast_signed());
        *value = scale * (f32::from(four_bits | two_bits) - 32.0);
    }
}

/// Scale of group `group` of 16, 6 bits: the lower 4 in the halves of bytes 0
/// to 7, the upper 2 in bytes 8 to 11.
fn q3_k_scale(scales: &[u8], group: usize) -> u8 {
    let four_bits = scales[group % 8] >> (group / 8 * 4) & 15;
    let two_bits = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    four_bits | two_bits << 4
}

/// Scale and minimum of group `group` of 8, 6 bits each: groups 0 to 3 whole
/// in bytes 0 to 3 and 4 to 7, whose upper 2 bits are those of groups 4 to 7,
/// and the lower 4 bits of these in bytes 8 to 11.
fn scale_and_minimum(scales: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (scales[group] & 63, scales[group + 4] & 63)
    } else {
        let four_bits = scales[group + 4];
        (
            four_bits & 15 | scales[group - 4] >> 6 << 4,
            four_bits >> 4 | scales[group] >> 6 << 4,
        )
    }
}
