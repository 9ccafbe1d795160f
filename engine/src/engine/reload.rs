//! A new policy for a running engine, on the arbiter's side.

use super::admission::Pending;
use super::arbiter::{Arbiter, Queue};
use super::counts::{ClassDoor, Counts};
use super::marks::Marks;
use super::shared::{Route, Routes};
use crate::policy::{ClassId, Profile};
use crate::sync::ingress::queue;
use crate::sync::{Arc, DataArc};

impl Queue {
    /// An ingress queue for `class`.
    pub(super) fn new(
        class: ClassId,
        capacity: usize,
        marks: &mut Marks<ClassId>,
        door: Arc<ClassDoor>,
    ) -> Self {
        let (producer, consumer) = queue(capacity);
        let route = Route { class, producer, mark: marks.take(class), door };
        Self { consumer, route, listed: false }
    }
}

impl Arbiter {
    /// Works by `profile` from now on.
    ///
    /// 1. Requests that were admitted to a class that goes are put into its lanes, where they drain.
    /// 2. The scheduler takes over.
    /// 3. Callers are shown the new ways.
    /// 4. The queues of classes that went are closed. Who came in between is sent to the class that the new policy
    ///    gives it; who comes later finds the queue closed and looks again.
    pub(super) fn reload(&mut self, profile: DataArc<Profile>) {
        let Self { desk, classes, marks, shared, .. } = self;
        let stays = |name: &str| profile.class_id(name).is_some();
        let gone: Vec<_> = desk
            .scheduler
            .classes()
            .filter(|(id, name)| !stays(name) && classes[id.index()].is_some())
            .map(|(id, _)| id)
            .collect();
        for id in &gone {
            if let Some(queue) = &mut classes[id.index()] {
                queue.consumer.drain(usize::MAX, |item| desk.take_in(*id, item));
            }
        }
        let mut old: Vec<_> = gone.iter().filter_map(|id| classes[id.index()].take()).collect();

        let mut drains = vec![false; desk.counts.len()];
        desk.scheduler.classes().for_each(|(id, _)| drains[id.index()] = true);
        let ids = desk.scheduler.reload(&profile);
        desk.observers.classes(desk.scheduler.classes());
        let highest = ids.iter().map(|id| id.index() + 1).max().unwrap_or(0);
        if classes.len() < highest {
            classes.resize_with(highest, || None);
            desk.counts.resize_with(highest, Counts::default);
        }
        let capacity = self.ingress_capacity;
        let routes = ids.iter().map(|&id| {
            let queue = classes[id.index()].get_or_insert_with(|| {
                let counts = &mut desk.counts[id.index()];
                if !drains.get(id.index()).is_some_and(|drains| *drains) {
                    *counts = Counts::default();
                }
                Queue::new(id, capacity, marks, counts.door.clone())
            });
            queue.route.clone()
        });
        let routes = DataArc::new(Routes::new(profile.clone(), routes.collect()));
        shared.routes.replace(routes.clone());
        self.routes = routes;

        for queue in &mut old {
            marks.give_back(queue.route.mark.id);
            queue.consumer.close(|item| {
                let pending = Pending::new(item);
                let uncached = pending.peek_snapshot().map_or(0, |snapshot| snapshot.uncached_tokens());
                let class = ids[profile.classify(pending.class(), uncached).index()];
                desk.take_in_pending(class, pending);
            });
        }
    }
}
