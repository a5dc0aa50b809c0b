//! Frames that wait for the encoder, within bounds. Pure.

use std::collections::VecDeque;

use spotter_core::{CameraId, Frame, Location, Mono, Picture, TrackId};

/// Frames of a camera that wait: they may be buffers of its decoder, which has few.
const OF_CAMERA_MAX: usize = 2;
/// Of all cameras.
const WAITING_MAX: usize = 32;

/// A track, and where it is on the frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeenTrack {
    pub track: TrackId,
    pub location: Location,
    pub score: f64,
    /// Of an object below `min_score`, which is no alarm.
    pub is_near: bool,
    /// The other objects of its prompt there.
    pub others: Vec<Location>,
}

/// A frame that becomes the picture of these events.
#[derive(Debug)]
pub(crate) struct FrameOrder {
    pub camera: CameraId,
    number: u64,
    pub received: Mono,
    pub picture: Picture,
    pub tracks: Vec<SeenTrack>,
}

/// Oldest first.
#[derive(Debug, Default)]
pub(crate) struct FrameQueue(VecDeque<FrameOrder>);

impl FrameQueue {
    /// Orders a picture of the track: of its orders, the newest counts. Returns the tracks that get none of an order that was replaced
    /// or declined. Where there is no room, an alarm replaces an order of objects below `min_score` alone; else this one is declined, and an
    /// earlier order of the track stays.
    pub fn push(&mut self, frame: &Frame, seen: SeenTrack) -> Vec<TrackId> {
        let is_same =
            |order: &FrameOrder| (&order.camera, order.number) == (&frame.camera, frame.number);
        let same = self.0.iter().any(is_same);
        let mut unmade = Vec::new();
        if !same && !self.has_room(&frame.camera, &seen.track) {
            let near = self.near_order(&frame.camera).filter(|_| !seen.is_near);
            let Some(replaced) = near.and_then(|index| self.0.remove(index)) else {
                return vec![seen.track];
            };
            unmade.extend(replaced.tracks.into_iter().map(|other| other.track));
        }
        for order in &mut self.0 {
            let replaced = order
                .tracks
                .extract_if(.., |other| other.track == seen.track);
            unmade.extend(replaced.map(|other| other.track));
        }
        if let Some(order) = self.0.iter_mut().find(|order| is_same(order)) {
            order.tracks.push(seen);
            self.0.retain(|order| !order.tracks.is_empty());
            return unmade;
        }
        self.0.retain(|order| !order.tracks.is_empty());
        self.0.push_back(FrameOrder {
            camera: frame.camera.clone(),
            number: frame.number,
            received: frame.times.received,
            picture: frame.picture.clone(),
            tracks: vec![seen],
        });
        unmade
    }

    /// An order of objects below `min_score` alone, in whose place the camera has room: one of its own, or of any where it has few.
    fn near_order(&self, camera: &CameraId) -> Option<usize> {
        let is_near = |order: &FrameOrder| order.tracks.iter().all(|seen| seen.is_near);
        let is_of_camera = |order: &FrameOrder| order.camera == *camera;
        let mut orders = self.0.iter();
        let own = orders.position(|order| is_of_camera(order) && is_near(order));
        let has_few = self.0.iter().filter(|order| is_of_camera(order)).count() < OF_CAMERA_MAX;
        own.or_else(|| self.0.iter().position(is_near).filter(|_| has_few))
    }

    /// For one more order, in place of those of this track alone.
    fn has_room(&self, camera: &CameraId, track: &TrackId) -> bool {
        let is_of_track = |seen: &SeenTrack| seen.track == *track;
        let stays = |order: &&FrameOrder| !order.tracks.iter().all(is_of_track);
        let staying = || self.0.iter().filter(stays);
        let of_camera = staying().filter(|order| order.camera == *camera);
        of_camera.count() < OF_CAMERA_MAX && staying().count() < WAITING_MAX
    }

    /// Removes the orders of a camera, and returns their tracks.
    pub fn remove(&mut self, camera: &CameraId) -> Vec<TrackId> {
        let (removed, left): (VecDeque<_>, _) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|order| order.camera == *camera);
        self.0 = left;
        let tracks = removed.into_iter().flat_map(|order| order.tracks);
        tracks.map(|seen| seen.track).collect()
    }

    pub fn pop(&mut self) -> Option<FrameOrder> {
        self.0.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use spotter_core::{NormPoint, testing::frame_at};

    fn frame(camera: &str, number: u64) -> Frame {
        let camera = CameraId::new(camera).unwrap();
        let frame = frame_at(&camera, Duration::from_secs(number));
        Frame { number, ..frame }
    }

    fn track(number: u64) -> TrackId {
        TrackId::new("b7c1", &CameraId::new("gate").unwrap(), number)
    }

    fn seen(number: u64) -> SeenTrack {
        SeenTrack {
            track: track(number),
            location: Location::Point(NormPoint::new(0.5, 0.5)),
            score: 0.5,
            is_near: false,
            others: Vec::new(),
        }
    }

    fn push(queue: &mut FrameQueue, camera: &str, frame: u64, number: u64) -> Vec<TrackId> {
        queue.push(&self::frame(camera, frame), seen(number))
    }

    fn push_near(queue: &mut FrameQueue, camera: &str, frame: u64, number: u64) -> Vec<TrackId> {
        let seen = SeenTrack {
            is_near: true,
            ..seen(number)
        };
        queue.push(&self::frame(camera, frame), seen)
    }

    #[test]
    fn frame_is_encoded_once_for_the_newest_of_a_track() {
        let mut queue = FrameQueue::default();
        for number in [1, 2, 3] {
            assert_eq!(push(&mut queue, "gate", 1, number), []);
        }
        assert_eq!(push(&mut queue, "gate", 2, 2), [track(2)]);
        let mut next = || {
            let tracks = queue.pop()?.tracks.into_iter();
            Some(tracks.map(|seen| seen.track).collect::<Vec<_>>())
        };
        assert_eq!(next(), Some(vec![track(1), track(3)]));
        assert_eq!(next(), Some(vec![track(2)]));
        assert_eq!(next(), None);
    }

    #[test]
    fn alarm_has_the_room_of_objects_below_min_score() {
        let mut queue = FrameQueue::default();
        // The second frame has an alarm too.
        assert_eq!(push_near(&mut queue, "gate", 1, 1), []);
        assert_eq!(push_near(&mut queue, "gate", 2, 2), []);
        assert_eq!(push(&mut queue, "gate", 2, 3), []);
        assert_eq!(push_near(&mut queue, "gate", 3, 4), [track(4)]);
        assert_eq!(push(&mut queue, "gate", 3, 5), [track(1)]);
        assert_eq!(push(&mut queue, "gate", 4, 6), [track(6)]);
        for number in 10..40 {
            let camera = format!("cam{number}");
            assert_eq!(push_near(&mut queue, &camera, 1, number), []);
        }
        // Those of other cameras make no room for a third frame.
        assert_eq!(push(&mut queue, "gate", 4, 6), [track(6)]);
        assert_eq!(push(&mut queue, "yard", 1, 7), [track(10)]);
    }

    #[test]
    fn frames_beyond_the_bounds_are_declined() {
        let mut queue = FrameQueue::default();
        for number in [1, 2] {
            assert_eq!(push(&mut queue, "gate", number, number), []);
        }
        assert_eq!(push(&mut queue, "gate", 3, 3), [track(3)]);
        // A better picture has the room of the one that it replaces.
        assert_eq!(push(&mut queue, "gate", 3, 2), [track(2)]);
        assert_eq!(push(&mut queue, "gate", 3, 3), []);
        // Without that, the earlier one is not lost.
        assert_eq!(push(&mut queue, "gate", 4, 3), [track(3)]);
        let waiting = queue.0.iter().flat_map(|order| &order.tracks);
        let waiting: Vec<_> = waiting.map(|seen| seen.track.clone()).collect();
        assert_eq!(waiting, [track(1), track(2), track(3)]);
        for number in 10..40 {
            assert_eq!(push(&mut queue, &format!("cam{number}"), 1, number), []);
        }
        assert_eq!(push(&mut queue, "yard", 1, 99), [track(99)]);
    }
}
