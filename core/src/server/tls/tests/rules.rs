//! What RFC 8446 §4.6.3, §5 and §6 forbid after the handshake, by a client that
//! seals what nobody honest does.

use rustls::PeerMisbehaved;

use super::*;

/// rustls remembers where the first part is, and so do we.
#[test]
fn half_a_message_after_the_handshake_does_not_stop_the_other_direction() {
    for state in STATES_13 {
        // A KeyUpdate of one byte, of which the last byte is missing.
        let mut forger = Pair::shaken(state, 100_000).forger();
        let half = forger.sealed(&[24, 0, 0], 22);
        assert_eq!(forger.say(half), Ok(Vec::new()));
        assert_eq!(forger.heard(), None);
        forger.session.seal(b"answer", &mut forger.records).unwrap();
        assert_eq!(forger.heard(), Some((b"answer".to_vec(), 23)));
        // Application data between the parts is against RFC 8446 §5.1.
        let data = forger.sealed(b"data", 23);
        let fault = PeerMisbehaved::MessageInterleavedWithHandshakeMessage;
        assert_eq!(forger.say(data), Err(fault.into()));
    }
}

#[test]
fn a_message_in_pieces_is_put_together() {
    for state in STATES_13 {
        for cut in 1..5 {
            let mut forger = Pair::shaken(state, 100_000).forger();
            let message = [24, 0, 0, 1, 1];
            let mut wire = forger.sealed(&message[..cut], 22);
            wire.extend(forger.sealed(&message[cut..], 22));
            assert_eq!(forger.say(wire), Ok(Vec::new()), "cut at {cut}");
            forger.session.close(&mut forger.records).unwrap();
            assert!(!forger.records.as_slice().is_empty());
        }
    }
}

/// Checks that a record ends the connection with an alert, if one is due.
#[track_caller]
fn check_refusal(content: &[u8], content_type: u8, padding: &[u8], alert: Option<u8>) {
    let mut forger = Pair::shaken(STATES[1], 100_000).forger();
    let wire = forger.padded(content, content_type, padding);
    let failure = forger.say(wire).unwrap_err();
    let expected = alert.map(|alert| (vec![2, alert], 21));
    assert_eq!(forger.heard(), expected, "{failure}");
    // It is over, both ways.
    let more = forger.sealed(b"more", 23);
    assert_eq!(forger.say(more), Err(failure.clone()));
    let sealed = forger.session.seal(b"answer", &mut forger.records);
    assert_eq!(sealed, Err(failure));
    assert_eq!(forger.records.as_slice(), b"");
}

#[test]
fn what_may_not_come_after_the_handshake_is_refused() {
    const UNEXPECTED_MESSAGE: u8 = 10;
    const RECORD_OVERFLOW: u8 = 22;
    const ILLEGAL_PARAMETER: u8 = 47;
    const DECODE_ERROR: u8 = 50;
    // Neither content nor type; a type that there is not; a change of ciphers.
    check_refusal(b"", 0, &[0; 9], Some(UNEXPECTED_MESSAGE));
    check_refusal(b"data", 24, b"", Some(UNEXPECTED_MESSAGE));
    check_refusal(&[1], 20, b"", Some(UNEXPECTED_MESSAGE));
    // A ClientHello, a certificate, nothing.
    check_refusal(&[1, 0, 0, 0], 22, b"", Some(UNEXPECTED_MESSAGE));
    check_refusal(&[11], 22, b"", Some(UNEXPECTED_MESSAGE));
    check_refusal(b"", 22, b"", Some(UNEXPECTED_MESSAGE));
    // KeyUpdates: too long, too short, of another kind, with something behind.
    check_refusal(&[24, 0, 0, 2, 0, 0], 22, b"", Some(DECODE_ERROR));
    check_refusal(&[24, 0, 0, 0], 22, b"", Some(DECODE_ERROR));
    check_refusal(&[24, 1], 22, b"", Some(DECODE_ERROR));
    check_refusal(&[24, 0, 0, 1, 2], 22, b"", Some(ILLEGAL_PARAMETER));
    check_refusal(&[24, 0, 0, 1, 0, 24], 22, b"", Some(UNEXPECTED_MESSAGE));
    // Alerts: too short and too long.
    check_refusal(&[2], 21, b"", Some(DECODE_ERROR));
    check_refusal(&[1, 0, 0], 21, b"", Some(DECODE_ERROR));
    // Longer than a record may be, with and without padding.
    check_refusal(&vec![1; 16_385], 23, b"", Some(RECORD_OVERFLOW));
    check_refusal(b"data", 23, &[0; 16_384], Some(RECORD_OVERFLOW));
    // An alert is not answered.
    check_refusal(&[2, 80], 21, b"", None);
    check_refusal(&[1, 112], 21, b"", None);
}

#[test]
fn records_that_are_not_sealed_are_refused() {
    for (wire, alert) in [
        (&b"\x14\x03\x03\x00\x01\x01"[..], 10),
        (b"\x15\x03\x03\x00\x02\x01\x00", 10),
        (b"\x16\x03\x03\x00\x05\x18\x00\x00\x01\x00", 10),
        (b"\x17\x03\x03\x00\x00", 20),
        (b"\x17\x03\x03\x00\x0f123456789012345", 20),
        (b"\x17\x03\x03\x00\x141234567890123456789 ", 20),
        // Told by its head.
        (b"\x17\x03\x03\x41\x01", 22),
    ] {
        let mut forger = Pair::shaken(STATES[1], 100_000).forger();
        assert!(forger.say(wire.to_vec()).is_err(), "{wire:?}");
        assert_eq!(forger.heard(), Some((vec![2, alert], 21)), "{wire:?}");
    }
}

/// The longest record, with the most padding that fits and with none.
#[test]
fn the_longest_records_are_read() {
    for state in STATES_13 {
        let mut forger = Pair::shaken(state, 100_000).forger();
        let data = vec![7; 16_384];
        let wire = forger.sealed(&data, 23);
        assert!(forger.say(wire) == Ok(data));
        let wire = forger.padded(b"data", 23, &[0; 16_380]);
        assert_eq!(forger.say(wire), Ok(b"data".to_vec()));
        let wire = forger.padded(b"\0\0", 23, &[0]);
        assert_eq!(forger.say(wire), Ok(b"\0\0".to_vec()));
    }
}

/// As many as rustls takes, and no more.
#[test]
fn what_says_nothing_is_taken_so_often() {
    for state in STATES_13 {
        for (content, content_type, most) in [(&b""[..], 23, 32), (&[1, 90], 21, 4)] {
            let mut forger = Pair::shaken(state, 100_000).forger();
            for turn in 0..most {
                let wire = forger.sealed(content, content_type);
                assert_eq!(forger.say(wire), Ok(Vec::new()), "{turn} {state:?}");
            }
            let wire = forger.sealed(content, content_type);
            assert!(forger.say(wire).is_err(), "{content_type} {state:?}");
        }
        let mut pair = Pair::shaken(state, 100_000);
        let mut num_updates = 0;
        let fault = loop {
            pair.client.refresh_traffic_keys().unwrap();
            let mut wire = pair.said();
            match pair.receive(&mut wire, 64) {
                Ok(_) => num_updates += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!(num_updates, 32, "{state:?}");
        assert_eq!(fault, PeerMisbehaved::TooManyKeyUpdateRequests.into());
    }
}
