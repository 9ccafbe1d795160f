//! Models of `sync::ingress`: producers against the one consumer, at capacity, and at the end.
//!
//! Modelled: the head, the count, and the links, which are loom's cells: a link that is read before it is published
//! is a race that loom reports. Loom's `Arc` reports items that nobody frees.
//! Trusted: `T` itself travels beside the link, with the same publication.

use crate::checker::thread;
use tollgate::sync::ingress::{Consumer, Producer, PushError, Queued, queue};

use crate::model::{bound, check};

fn push_all(producer: &Producer<u32>, items: &[u32]) {
    for &item in items {
        producer.push(Queued::new(item)).expect("open, and below capacity");
    }
}

/// What a push did with its item.
#[derive(Debug, PartialEq)]
enum Pushed {
    Accepted,
    Full,
    Closed,
}

fn push(producer: &Producer<u32>, item: u32) -> Pushed {
    match producer.push(Queued::new(item)) {
        Ok(()) => Pushed::Accepted,
        Err(PushError::Full(back)) => {
            assert_eq!(*back, item);
            Pushed::Full
        }
        Err(PushError::Closed(back)) => {
            assert_eq!(*back, item);
            Pushed::Closed
        }
    }
}

/// Two threads push while this one drains, first `first` items and then the rest, and returns them in order.
fn race(left: &'static [u32], right: &'static [u32], first: usize) -> Vec<u32> {
    let (producer, mut consumer) = queue(left.len() + right.len());
    let other = producer.clone();
    let left = thread::spawn(move || push_all(&producer, left));
    let right = thread::spawn(move || push_all(&other, right));
    let mut out = Vec::new();
    consumer.drain(first, |item| out.push(*item));
    left.join().unwrap();
    right.join().unwrap();
    consumer.drain(usize::MAX, |item| out.push(*item));
    out
}

#[test]
fn two_pushes_against_a_drain() {
    check("ingress: two pushes against a drain", bound::TWO_PUSHES, || {
        let mut out = race(&[1], &[10], usize::MAX);
        out.sort_unstable();
        assert_eq!(out, [1, 10]);
    });
}

#[test]
fn two_pushes_in_a_row_and_one_beside_them_against_a_drain_of_one() {
    check("ingress: 2 + 1 pushes against a drain of one", bound::THREE_ITEMS, || {
        let out = race(&[1, 2], &[10], 1);
        assert!([[1, 2, 10], [1, 10, 2], [10, 1, 2]].iter().any(|order| out == *order), "{out:?}");
    });
}

#[test]
fn two_pushes_for_the_last_place() {
    check("ingress: two pushes for the last place", bound::NONE, || {
        let (producer, mut consumer) = queue(1);
        let other = producer.clone();
        let left = thread::spawn(move || push(&other, 1));
        let right = push(&producer, 2);
        let left = left.join().unwrap();
        let winner = match (left, right) {
            (Pushed::Accepted, Pushed::Full) => 1,
            (Pushed::Full, Pushed::Accepted) => 2,
            both => panic!("{both:?}"),
        };
        assert_eq!(drained(&mut consumer), [winner]);
        assert_eq!(push(&producer, 3), Pushed::Accepted, "a refused push keeps no place");
    });
}

#[test]
fn two_pushes_at_capacity_against_a_drain() {
    check("ingress: two pushes at capacity against a drain", bound::NONE, || {
        let (producer, mut consumer) = queue(1);
        let (left, right) = (producer.clone(), producer.clone());
        let left = thread::spawn(move || push(&left, 1));
        let right = thread::spawn(move || push(&right, 2));
        let mut out = drained(&mut consumer);
        let outcome = [(1, left.join().unwrap()), (2, right.join().unwrap())];
        out.extend(drained(&mut consumer));
        out.sort_unstable();
        let accepted: Vec<u32> =
            outcome.iter().filter(|(_, pushed)| *pushed == Pushed::Accepted).map(|(item, _)| *item).collect();
        assert_eq!(out, accepted);
        assert!(!accepted.is_empty() && outcome.iter().all(|(_, pushed)| *pushed != Pushed::Closed));
        assert_eq!(push(&producer, 3), Pushed::Accepted, "every place is free again");
        assert_eq!(push(&producer, 4), Pushed::Full, "there is one place");
    });
}

fn drained(consumer: &mut Consumer<u32>) -> Vec<u32> {
    let mut out = Vec::new();
    let count = consumer.drain(usize::MAX, |item| out.push(*item));
    assert_eq!(count, out.len());
    out
}

#[test]
fn close_against_two_pushes() {
    check("ingress: close against two pushes", bound::TWO_PUSHES_AND_CLOSE, || close_against(2, 1));
}

/// Some threads push some items each while this one drains all but the last time, and then closes.
pub(crate) fn close_against(threads: u32, each: u32) {
    let (producer, mut consumer) = queue((threads * each) as usize);
    let pushers: Vec<_> = (0..threads)
        .map(|thread| {
            let producer = producer.clone();
            thread::spawn(move || {
                let items = thread * each..(thread + 1) * each;
                items.map(|item| (item, push(&producer, item))).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut out = Vec::new();
    for _ in 1..each {
        consumer.drain(threads as usize, |item| out.push(*item));
    }
    consumer.close(|item| out.push(*item));
    let of = |thread| out.iter().copied().filter(move |item| item / each == thread);
    assert!((0..threads).all(|thread| of(thread).is_sorted()), "first in, first out per producer: {out:?}");
    out.sort_unstable();
    let outcome: Vec<_> = pushers.into_iter().flat_map(|pusher| pusher.join().unwrap()).collect();
    assert!(drained(&mut consumer).is_empty(), "nothing comes after the close");
    let accepted: Vec<u32> =
        outcome.iter().filter(|(_, pushed)| *pushed == Pushed::Accepted).map(|(item, _)| *item).collect();
    assert_eq!(out, accepted);
    assert!(outcome.iter().all(|(_, pushed)| *pushed != Pushed::Full));
}

#[test]
fn drop_of_the_consumer_against_a_push() {
    check("ingress: drop of the consumer against a push", bound::NONE, || {
        let (producer, consumer) = queue(2);
        producer.push(Queued::new(1)).expect("open, and below capacity");
        let other = producer.clone();
        let pusher = thread::spawn(move || push(&other, 2));
        drop(consumer);
        assert_ne!(pusher.join().unwrap(), Pushed::Full);
        for item in [3, 4] {
            assert_eq!(push(&producer, item), Pushed::Closed, "a refused push keeps no place");
        }
        // What was accepted is freed with the consumer: loom looks for leaks.
    });
}
