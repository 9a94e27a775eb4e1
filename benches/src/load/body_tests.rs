//! Bodies of which only a sample is compared: what is dropped unread is still counted, and a wrong
//! length, an early end or a byte too many is no success.

use std::io::{BufReader, Write as _};
use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;

use super::tests::{Server, check, plan, read_request, tls_server};
use super::*;

/// Longer than what is dropped in one call.
const LENGTH: usize = 5 << 18;

fn body() -> Vec<u8> {
    b"0123456789abcdef".repeat(LENGTH / 16)
}

fn response(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Ten attempts on one connection, of which the first, fifth and ninth are compared.
fn sampled(plan: LoadPlan) -> LoadPlan {
    let expect = Expectation {
        status: Some(200),
        body: Some(ExpectedBody::Sampled {
            bytes: body(),
            every: NonZeroU32::new(4).unwrap(),
        }),
    };
    LoadPlan { expect, ..plan }
}

#[test]
fn a_sample_is_compared_and_every_byte_counted() {
    let server = Server::answering(response(&body()));
    let report = check(&sampled(server.plan()), &[(Outcome::Ok, 10)]);
    assert_eq!(report.bodies_compared, Some(3));
    assert_eq!(report.bytes_read, 10 * response(&body()).len() as u64);
    assert_eq!(report.connections_opened, Some(1));
    assert_eq!(report.first_response.unwrap().body_len, body().len() as u64);
}

#[test]
fn wrong_bytes_are_found_in_the_sample() {
    for place in [0, LENGTH / 2, LENGTH - 1] {
        let mut wrong = body();
        wrong[place] ^= 1;
        let server = Server::answering(response(&wrong));
        let plan = LoadPlan {
            stop: Stop::Requests(12),
            ..sampled(server.plan())
        };
        check(&plan, &[(Outcome::Ok, 9), (Outcome::BodyMismatch, 3)]);
    }
}

#[test]
fn a_wrong_length_is_found_in_every_answer() {
    for length in [LENGTH - 1, LENGTH + 1, 0] {
        let mut wrong = body();
        wrong.resize(length, 0);
        let server = Server::answering(response(&wrong));
        check(&sampled(server.plan()), &[(Outcome::BodyMismatch, 10)]);
    }
}

#[test]
fn an_end_in_an_unread_body_is_early() {
    let server = Server::new(|stream| {
        let whole = response(&body());
        let mut reader = BufReader::new(&stream);
        // The first on each connection is whole; the second breaks off after what is dropped.
        if read_request(&mut reader) && (&stream).write_all(&whole).is_ok() {
            read_request(&mut reader);
            drop((&stream).write_all(&whole[..LENGTH - 7]));
        }
    });
    let plan = sampled(server.plan());
    check(&plan, &[(Outcome::Ok, 5), (Outcome::EofEarly, 5)]);
}

#[test]
fn bytes_behind_an_unread_body_are_extra() {
    let server = Server::answering([&response(&body())[..], b"x"].concat());
    let report = run(&sampled(server.plan()), &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    // The byte comes with the body, or so late that it is what the next answer begins with.
    let (ok, extra) = (
        report.outcomes.get(Outcome::Ok),
        report.outcomes.get(Outcome::ExtraBytes),
    );
    assert_eq!(ok + extra, 10, "{}", report.render_text());
    assert!(extra >= 5, "{}", report.render_text());
}

#[test]
fn what_nobody_asks_about_is_dropped_too() {
    let server = Server::answering(response(&body()));
    let report = check(&server.plan(), &[(Outcome::Ok, 10)]);
    assert_eq!(report.bodies_compared, None);
    assert_eq!(report.bytes_read, 10 * response(&body()).len() as u64);
}

#[test]
fn where_the_kernel_cannot_drop_them_bodies_are_read() {
    let whole: &'static [u8] = response(&body()).leak();
    let (server, _) = tls_server(whole);
    let url = format!("https://{}/", server.address);
    let report = check(
        &sampled(plan(&url, Some(&Trust::Insecure))),
        &[(Outcome::Ok, 10)],
    );
    assert_eq!(report.bodies_compared, Some(3));
    let server = Server::answering(whole);
    let library = LoadPlan {
        client: Client::Reqwest,
        ..sampled(server.plan())
    };
    // It has no slot whose answers could be counted: each is compared.
    let report = check(&library, &[(Outcome::Ok, 10)]);
    assert_eq!(report.bodies_compared, Some(10));
}
