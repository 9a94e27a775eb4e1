//! Sessions survive the round trip, and nothing else opens.

use http::StatusCode;
use http::header::COOKIE;
use proptest::prelude::*;

use super::*;

const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];

fn sessions(secrets: &[[u8; 32]]) -> Sessions {
    Sessions::new(secrets).unwrap()
}

fn session(visits: u32) -> Session {
    let mut session = Session::new();
    session.insert("visits", visits).unwrap();
    session
}

/// The value of a `Set-Cookie` made now.
fn sealed(sessions: &Sessions, session: &Session) -> String {
    let cookie = sessions.seal(session, SystemTime::now(), true);
    let text = cookie.to_str().unwrap();
    let pair = text.split(';').next().unwrap();
    pair.split_once('=').unwrap().1.to_owned()
}

fn opened(sessions: &Sessions, cookie: &str) -> Option<Session> {
    opened_at(sessions, cookie, SystemTime::now())
}

fn opened_at(sessions: &Sessions, cookie: &str, now: SystemTime) -> Option<Session> {
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, HeaderValue::from_bytes(cookie.as_bytes()).unwrap());
    sessions.open(&headers, now)
}

#[test]
fn a_session_survives_the_round_trip_and_is_not_readable() {
    let sessions = sessions(&[NEW]);
    let mut session = session(7);
    session.insert("name", "caf\u{e9} \u{1F980}").unwrap();
    let value = sealed(&sessions, &session);
    assert_eq!(
        opened(&sessions, &format!("a=b; session={value}")),
        Some(session.clone())
    );
    assert_ne!(
        value,
        sealed(&sessions, &session),
        "each value has a salt of its own"
    );
    assert_eq!(session.get::<u32>("visits"), Some(7));
    assert_eq!(session.get::<String>("visits"), None);
    assert!(!format!("{session:?} {sessions:?}").contains("caf"));
}

#[test]
fn an_old_secret_opens_and_the_first_one_seals() {
    let (old, both, new) = (sessions(&[OLD]), sessions(&[NEW, OLD]), sessions(&[NEW]));
    let cookie = |sessions| format!("session={}", sealed(sessions, &session(1)));
    assert!(opened(&both, &cookie(&old)).is_some());
    assert!(opened(&new, &cookie(&both)).is_some());
    assert!(opened(&new, &cookie(&old)).is_none());
    assert!(opened(&old, &cookie(&both)).is_none());
}

#[test]
fn a_session_ends_with_its_age() {
    let sessions = sessions(&[NEW]).max_age(Duration::from_mins(1)).unwrap();
    let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
    let cookie = sessions.seal(&session(1), now, false);
    let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
    let after = |secs| opened_at(&sessions, cookie, now + Duration::from_secs(secs));
    assert!(after(0).is_some() && after(59).is_some());
    assert!(after(60).is_none() && after(1_000_000).is_none());
}

#[test]
fn a_value_is_bound_to_its_cookie() {
    let one = sessions(&[NEW]);
    let other = sessions(&[NEW]).cookie_name("other").unwrap();
    let value = sealed(&one, &session(1));
    assert!(opened(&other, &format!("other={value}")).is_none());
    assert!(opened(&other, &format!("session={value}")).is_none());
}

#[test]
fn a_foreign_cookie_of_the_same_name_does_not_hide_ours() {
    let sessions = sessions(&[NEW]);
    let value = sealed(&sessions, &session(1));
    assert!(opened(&sessions, &format!("session=garbage; session={value}")).is_some());
    let foreign = "session=garbage; ".repeat(MAX_TRIED);
    assert!(opened(&sessions, &format!("{foreign}session={value}")).is_none());
}

#[test]
fn garbage_is_no_session() {
    let sessions = sessions(&[NEW]);
    let long = "A".repeat(100_000);
    for value in [
        "",
        "=",
        "A",
        "AQ",
        "AQ==",
        "!!!!",
        &long,
        &"A".repeat(80),
        "AQ".repeat(40).as_str(),
    ] {
        assert_eq!(
            opened(&sessions, &format!("session={value}")),
            None,
            "{value}"
        );
    }
}

#[test]
fn the_largest_session_fits_a_cookie() {
    let sessions = sessions(&[NEW])
        .cookie_name(&"n".repeat(MAX_NAME_BYTES))
        .unwrap();
    let mut session = Session::new();
    session
        .insert("a", "x".repeat(MAX_SESSION_BYTES - 8))
        .unwrap();
    let before = session.clone();
    let error = session.insert("b", 1).unwrap_err();
    assert!(matches!(
        error,
        SessionError::TooLarge {
            limit: MAX_SESSION_BYTES,
            ..
        }
    ));
    assert_eq!(session, before);
    let cookie = sessions.seal(&session, SystemTime::now(), true);
    let pair = cookie.to_str().unwrap().split(';').next().unwrap();
    assert!(pair.len() <= 4096, "{}", pair.len());
    assert_eq!(opened(&sessions, pair), Some(session));
}

#[test]
fn set_and_clear_reach_the_response() {
    let sessions = sessions(&[NEW]);
    let apply = |mut response: Response| {
        sessions.apply(&mut response, true);
        response.headers().clone()
    };
    let set = apply(Response::new(StatusCode::OK).with_session(session(1)));
    let cookie = set[SET_COOKIE].to_str().unwrap();
    assert!(cookie.ends_with("; Max-Age=1209600; Path=/; HttpOnly; SameSite=Lax; Secure"));
    assert_eq!(set[CACHE_CONTROL], "no-store");
    let cleared = apply(Response::new(StatusCode::OK).without_session());
    assert_eq!(
        cleared[SET_COOKIE],
        "session=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax; Secure"
    );
    assert!(apply(Response::new(StatusCode::OK)).is_empty());
}

#[test]
fn weak_secrets_and_names_are_refused() {
    assert!(Sessions::new(&[[0; 31]]).is_err());
    assert!(Sessions::new::<[u8; 32]>(&[]).is_err());
    assert!(Sessions::new(&[[0; 32]; MAX_SECRETS + 1]).is_err());
    assert!(sessions(&[NEW]).cookie_name("a b").is_err());
    assert!(sessions(&[NEW]).max_age(Duration::ZERO).is_err());
}

/// Every bit of every byte, exhaustively.
#[test]
fn any_flipped_bit_is_rejected() {
    let sessions = sessions(&[NEW]);
    let value = sealed(&sessions, &session(1));
    for index in 0..value.len() {
        for bit in 0..7 {
            let mut bytes = value.clone().into_bytes();
            bytes[index] ^= 1 << bit;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(
                sessions.keys[0].open("session", &changed).is_none(),
                "{index} {bit}"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_changed_value_opens(
        index in any::<prop::sample::Index>(),
        byte in any::<char>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let sessions = sessions(&[NEW]);
        let value = sealed(&sessions, &session(1));
        let at = index.index(value.len());
        let changed = format!("{}{byte}{}", &value[..at], &value[at + 1..]);
        prop_assume!(changed != value);
        prop_assert!(sessions.keys[0].open("session", &changed).is_none());
        let inserted = format!("{}{byte}{}", &value[..at], &value[at..]);
        prop_assert!(sessions.keys[0].open("session", &inserted).is_none());
        let cut = &value[..cut.index(value.len())];
        prop_assert!(sessions.keys[0].open("session", cut).is_none());
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let sessions = sessions(&[NEW]);
        prop_assert!(sessions.keys[0].open("session", &text).is_none());
    }
}

#[test]
fn a_session_is_a_json_object_within_the_limit() {
    let session = session(7);
    assert_eq!(session.to_json(), b"{\"visits\":7}");
    assert_eq!(Session::from_json(&session.to_json()).unwrap(), session);
    assert!(Session::from_json(b"{}").unwrap().is_empty());
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_SESSION_BYTES));
    for bad in ["[]", "{", &large] {
        assert!(Session::from_json(bad.as_bytes()).is_err());
    }
}

#[test]
fn a_file_of_secrets_is_read_line_by_line() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secrets");
    let secret = String::from_utf8(NEW.map(|_| b'a').to_vec()).unwrap();
    fs::write(&path, format!("# new\n\n {secret} \n{secret}b\n")).unwrap();
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o640);
    let read = Sessions::from_file(&path).unwrap();
    assert_eq!(read.keys.len(), 2);
    let found = sealed(&Sessions::new(&[&secret]).unwrap(), &session(1));
    assert!(opened(&read, &format!("session={found}")).is_some());
    mode(0o644);
    let error = Sessions::from_file(&path).unwrap_err().to_string();
    assert!(
        error.contains("chmod 600") && !error.contains(&secret),
        "{error}"
    );
    assert!(Sessions::from_file(folder.path().join("none").as_path()).is_err());
}
