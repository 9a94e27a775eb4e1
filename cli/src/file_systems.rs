//! File systems that tell nobody of what others write to them.
//!
//! Their numbers are those of `statfs(2)`.

use std::path::Path;

use rustix::fs::statfs;

/// Those that other machines write to, or the host of a virtual one.
const SILENT: [(u32, &str); 7] = [
    (0x0102_1997, "9P"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x517b, "SMB"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x786f_4256, "vboxsf"),
];

/// The name of the file system of a folder, if it tells nobody of changes.
pub(crate) fn without_events(folder: &Path) -> Option<&'static str> {
    // A number of 32 bits, whatever the architecture puts it into.
    name(statfs(folder).ok()?.f_type as u32)
}

fn name(number: u32) -> Option<&'static str> {
    let known = SILENT.iter().find(|(silent, _)| *silent == number)?;
    Some(known.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_known_by_their_numbers() {
        assert_eq!(name(0x6969), Some("NFS"));
        assert_eq!(name(0x786f_4256), Some("vboxsf"));
        // A local ext4.
        assert_eq!(name(0xef53), None);
        assert_eq!(without_events(Path::new("/proc")), None);
    }
}
