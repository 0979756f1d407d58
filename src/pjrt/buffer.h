// An array in the memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/shape.h"
#include "pjrt/event.h"

struct PJRT_Buffer;

namespace torch_xla::pjrt {

class Client;
class Device;

// Move-only, the only owner of the plugin's buffer; keeps the client alive. The data may still be
// on its way: every method that needs it waits on the device's side. Methods are thread-safe,
// except that moving from it or destroying it must not race with anything. Use of a moved-from
// buffer, other than destroying or assigning to it, is a mistake.
class Buffer {
 public:
  // Takes ownership of `buffer`.
  Buffer(std::shared_ptr<Client> client, PJRT_Buffer* buffer);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  // The memory is freed when the work that uses it has ended; this does not wait for it.
  ~Buffer();

  Client& client() const { return *client_; }
  base::DType dtype() const;
  base::Dims dims() const;
  base::Shape shape() const { return {dtype(), dims()}; }
  Device* device() const;
  std::size_t on_device_size_in_bytes() const;
  // True if the data lies in host memory.
  bool is_on_cpu() const;

  // Copies the data, dense and row-major, into `dst`, which must hold it and stay alive until the
  // event is ready. Throws if `size_bytes` is too small or the buffer is deleted.
  Event to_host(void* dst, std::size_t size_bytes) const;
  // Ready when the data is, or when the program that was to make it failed.
  Event ready_event() const;
  // A copy on another device of the client.
  Buffer copy_to_device(Device* device) const;

  // Gives the memory back before the buffer is destroyed. Harmless when done twice.
  void delete_();
  // True after delete_, and after a launch that took the buffer as a donation.
  bool is_deleted() const;

  // The device's address, for diagnosis and identity; see ExternalReference for one to use.
  std::uintptr_t unsafe_pointer() const;

  PJRT_Buffer* c_buffer() const { return buffer_; }

 private:
  void destroy() noexcept;

  std::shared_ptr<Client> client_;
  PJRT_Buffer* buffer_ = nullptr;
};

// While it lives, the buffer's memory stays where it is and is not freed, reused or donated, so
// that another library may use `data()`. Move-only; must not outlive the buffer.
class ExternalReference {
 public:
  // Blocks until the data is ready. Throws if the plugin cannot share its memory.
  explicit ExternalReference(const Buffer& buffer);
  ExternalReference(ExternalReference&& other) noexcept;
  ExternalReference& operator=(ExternalReference&& other) noexcept;
  ExternalReference(const ExternalReference&) = delete;
  ExternalReference& operator=(const ExternalReference&) = delete;
  ~ExternalReference();

  void* data() const { return data_; }

 private:
  void release() noexcept;

  const PJRT_Api* api_ = nullptr;
  PJRT_Buffer* buffer_ = nullptr;
  void* data_ = nullptr;
};

}  // namespace torch_xla::pjrt
